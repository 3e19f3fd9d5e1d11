"""What a graph reads, what its file says, and that a wrong one is never written."""

import pytest
import torch

from pctx.geometry.flat import dynamic_axes
from pctx.inference.export import EXAMPLE, OTHERS, example, export_network, facts_of
from pctx.inference.exported import ExportFacts, network_inputs, read_facts
from pctx.models.factory import create_model
from tests.toy import BACKBONE, toy_checkpoint

SMALL = {"channels": 24, "depth": 1, "num_heads": 2, "point_channels": 12}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return create_model("point_vit_tiny", 4, 3, **SMALL).eval()


def test_a_graph_reads_no_more_than_its_network(model):
    _, names = export_network(model)
    assert list(names) == sorted(names)
    assert "levels_1_grid_coord" in names and "levels_0_nearest_coarse_distance" in names
    assert not {"levels_0_coord", "levels_0_offsets", "levels_1_coord"} & set(names)


def test_a_graph_that_holds_for_one_size_only_is_refused(model, monkeypatch):
    plain = type(model.backbone).forward

    def counted(self, feat, hierarchy):
        # The number of points that the graph is traced with; a model divides by its own.
        traced = torch.compiler.is_compiling()
        return plain(self, feat, hierarchy) / (sum(EXAMPLE) if traced else feat.shape[0])

    monkeypatch.setattr(type(model.backbone), "forward", counted)
    with pytest.raises(ValueError, match="logits are up to .* from the model's, more than 0.0001"):
        export_network(model)


def test_a_network_with_a_fixed_number_of_points_is_refused(model, monkeypatch):
    plain = type(model.backbone).forward

    def fixed(self, feat, hierarchy):
        return plain(self, feat, hierarchy) / len(feat)

    monkeypatch.setattr(type(model.backbone), "forward", fixed)
    with pytest.raises(Exception, match="specialized it to be a constant"):
        export_network(model)


def test_graphs_are_traced_and_checked_with_clouds_of_other_sizes():
    sizes = {EXAMPLE, *OTHERS}
    assert len(sizes) == 3 and any(len(counts) == 1 for counts in sizes)
    for counts in sizes:
        batch = example(5, counts)
        assert batch.feat.shape == (sum(counts), 5)
        assert batch.offsets.diff().tolist() == list(counts)


def test_facts_go_round_and_plan_without_weights():
    checkpoint = toy_checkpoint()
    facts = facts_of(checkpoint, ("feat",))
    again = ExportFacts.from_json(facts.to_json())
    assert again.to_json() == facts.to_json()
    assert (again.backbone, again.labels) == (BACKBONE, checkpoint.labels)
    planner = again.planner()
    assert {p.device.type for p in planner.parameters()} == {"meta"}
    points = example(1, (40, 3))
    own = network_inputs(checkpoint.build().backbone, points)
    for name, tensor in network_inputs(planner, points).items():
        assert torch.equal(tensor, own[name]), name


def test_other_formats_and_empty_clouds_are_refused(tmp_path, model):
    with pytest.raises(ValueError, match="of format 'pctx-net-9', expected 'pctx-net-1'"):
        ExportFacts.from_json('{"format": "pctx-net-9"}')
    with pytest.raises(ValueError, match="at least one point, found none"):
        network_inputs(model.backbone, example(4, (0, 0)))

    class Double(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    program = torch.export.export(Double(), (torch.ones(3),))
    torch.export.save(program, tmp_path / "other.pt2")
    with pytest.raises(ValueError, match=r"other\.pt2: no file of pctx export"):
        read_facts(tmp_path / "other.pt2")


def test_the_sizes_of_the_example_give_two_of_everything(model):
    """One window, or one slot, would be taken for the only number there is."""
    inputs = network_inputs(model.backbone, example(4, EXAMPLE))
    for name, tensor in inputs.items():
        axes = dynamic_axes(name, tensor)
        assert all(tensor.shape[axis] >= 2 for axis in axes), name
