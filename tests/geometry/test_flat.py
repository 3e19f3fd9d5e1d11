"""Plans as named tensors."""

import pytest
import torch

from pctx.geometry.flat import PARTS, dynamic_axes, flat_inputs, from_flat, settled
from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.strided_map import strided_map
from pctx.geometry.tap_table import tap_table
from pctx.geometry.window_parts import part_windows
from pctx.geometry.windows import grid_windows
from pctx.models.factory import create_backbone, list_models
from tests.models.clouds import random_batch

TINY = [name for name in list_models() if name.endswith("_tiny")]


def pairs(table):
    """(source, target, tap) of every pair of a table of sources."""
    target, tap = table.nonzero().unbind(1)
    return set(zip((table[target, tap] - 1).tolist(), target.tolist(), tap.tolist(), strict=True))


def pairs_of(kernel_map):
    taps = torch.arange(kernel_map.kernel_size**3)
    tap = taps.repeat_interleave(torch.tensor(kernel_map.starts).diff())
    source, target = kernel_map.source.tolist(), kernel_map.target.tolist()
    return set(zip(source, target, tap.tolist(), strict=True))


@pytest.fixture(params=TINY)
def backbone(request):
    return create_backbone(request.param, 4).eval()


def test_a_plan_comes_back_from_its_tensors_and_gives_the_same(backbone):
    batch = random_batch([300, 0, 9, 40])
    plan = settled(backbone.plan(batch))
    like = settled(backbone.plan(random_batch([77, 30], seed=1)))
    inputs = flat_inputs(plan)
    again = from_flat(like, inputs)
    assert {name: t.shape for name, t in flat_inputs(again).items()} == {
        name: t.shape for name, t in inputs.items()
    }
    assert all(
        torch.equal(a, b) for a, b in zip(inputs.values(), flat_inputs(again).values(), strict=True)
    )
    with torch.no_grad():
        expected = backbone(batch.feat, backbone.plan(batch))
        # Sums of float32 in another order, through a dozen layers.
        torch.testing.assert_close(backbone(batch.feat, again), expected, rtol=0, atol=1e-5)


def test_plans_of_any_points_have_the_same_names_and_fixed_axes(backbone):
    def form(batch):
        return {
            name: (
                tensor.dtype,
                *(
                    n
                    for axis, n in enumerate(tensor.shape)
                    if axis not in dynamic_axes(name, tensor)
                ),
            )
            for name, tensor in flat_inputs(settled(backbone.plan(batch))).items()
        }

    forms = [form(random_batch(counts)) for counts in ([1], [900], [40, 0, 3])]
    assert forms[0] == forms[1] == forms[2]


def test_limits_come_without_their_end(backbone):
    plan = settled(backbone.plan(random_batch([50, 0, 9])))
    begins = flat_inputs(plan)["levels_0_offsets"]
    assert begins.tolist() == [0, 50, 50]
    assert from_flat(plan, flat_inputs(plan)).levels[0].offsets.tolist() == [0, 50, 50, 59]


def test_a_table_holds_the_pairs_of_its_map_both_ways():
    batch = random_batch([200, 30])
    own = kernel_map(batch.grid_coord, batch.offsets, 3)
    coarse = torch.cat([each.unique(dim=0) for each in (batch.grid_coord // 2).split([200, 30])])
    sizes = [
        len((batch.grid_coord // 2)[part].unique(dim=0)) for part in (slice(200), slice(200, 230))
    ]
    limits = torch.tensor([0, *sizes]).cumsum(0)
    strided = strided_map(batch.grid_coord, batch.offsets, coarse, limits, kernel_size=3, stride=2)
    for each in (own, strided):
        table = tap_table(each)
        assert pairs(table.source) == pairs_of(each)
        assert pairs(table.turned().source) == pairs_of(each.turned())
        assert table.num_sources == each.num_sources
        assert table.turned().num_sources == each.num_targets


def test_parts_of_a_fixed_number_own_every_point():
    for counts in ([1], [9, 0, 4], [2000]):
        batch = random_batch(counts)
        windows = grid_windows(batch.grid_coord, batch.offsets, 5)
        parts = part_windows(windows, PARTS)
        assert len(parts.parts) == PARTS
        assert all(part.windows.num_windows > 1 for part in parts.parts)
        rows = torch.cat([part.rows for part in parts.parts])
        assert rows[parts.inverse].tolist() == list(range(len(batch)))
