"""A plan sorts its finest points along each curve, and none again on a coarser level."""

import pytest
import torch

from pctx.geometry import sorting
from pctx.geometry.kernel_map import kernel_maps
from pctx.inference.drive import drive_voxels
from pctx.models.point_transformer_v3 import PointTransformerV3
from tests.models.clouds import random_batch

CURVES = ("z", "hilbert", "z-trans")


@pytest.fixture
def sorted_sizes(monkeypatch):
    """The number of keys of every sort, by whatever engine."""
    sizes, by_row, by_torch, argsort = [], sorting._sort_packed, torch.sort, torch.argsort
    monkeypatch.setattr(
        sorting, "_sort_packed", lambda key, bits: (sizes.append(len(key)), by_row(key, bits))[1]
    )
    for name, sort in (("sort", by_torch), ("argsort", argsort), ("unique", torch.unique)):
        monkeypatch.setattr(
            torch,
            name,
            lambda key, *a, sort=sort, **k: (sizes.append(len(key)), sort(key, *a, **k))[1],
        )
    return sizes


def plan(levels):
    model = PointTransformerV3(
        in_channels=1,
        curves=CURVES,
        channels=(8,) * levels,
        depths=(1,) * levels,
        num_heads=(1,) * levels,
        strides=(2,) * (levels - 1),
        encoder_only=True,
        window_size=32,
    )
    return model.plan(random_batch([700, 300]))


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_no_curve_is_sorted_anew_at_a_coarser_level(sorted_sizes, monkeypatch, levels):
    # Kernel maps have orders of their own, one a level; see below.
    monkeypatch.setattr("pctx.geometry.hierarchy.kernel_maps", lambda *_: {})
    sorting._radix_is_faster()
    sorted_sizes.clear()
    assert len(plan(levels).levels) == levels
    assert sorted_sizes == [1000] * len(CURVES)


def test_all_kernels_of_a_level_share_one_sort(sorted_sizes):
    cells = drive_voxels(500)
    rows = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    sorting._radix_is_faster()
    sorted_sizes.clear()
    kernel_maps(cells[rows], torch.tensor([0, 500]), (3, 5))
    assert sorted_sizes.count(500) == 1


def test_voxels_that_come_in_order_are_not_sorted(sorted_sizes):
    sorting._radix_is_faster()
    sorted_sizes.clear()
    kernel_maps(drive_voxels(500), torch.tensor([0, 500]), (3,))
    assert 500 not in sorted_sizes
