"""Names, shapes and counts of the published configurations, without their memory."""

import csv

import pytest
import torch

from pctx.models.factory import create_model
from pctx.models.point_transformer_v3 import PointTransformerV3
from pctx.models.published import from_published, ptv3_name, to_published

ROWS = {
    "ptv3_nuscenes": "ptv3_base",
    "ptv3_waymo": "ptv3_base",
    "ptv3_semantickitti": "ptv3_base",
    "ptv3_scannet": "ptv3",
    "ptv3_s3dis": "ptv3_base",
    "ptv3_s3dis_rpe": "ptv3_rpe",
}


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def model_of(golden, row):
    counts = {line["name"]: line for line in table(golden / "param_counts.tsv")}[row]
    with torch.device("meta"):
        model = create_model(ROWS[row], int(counts["in_channels"]), int(counts["num_classes"]))
    return model, counts


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("row", ROWS)
def test_parameters_are_as_many_as_published(golden, row):
    model, counts = model_of(golden, row)
    assert count(model) == int(counts["parameters"])
    assert count(model.backbone) == int(counts["backbone_parameters"])
    assert sum(b.numel() for b in model.buffers()) == int(counts["buffers_elements"])
    assert len(model.state_dict()) == int(counts["state_dict_entries"])


def test_the_encoder_alone_has_as_many_parameters_as_published():
    with torch.device("meta"):
        backbone = PointTransformerV3(in_channels=6, encoder_only=True)
    assert count(backbone) == 38_672_640


@pytest.mark.parametrize("row", ROWS)
def test_names_and_shapes_are_the_published_ones(golden, row):
    model, _ = model_of(golden, row)
    published = {
        line["key"]: () if line["shape"] == "scalar" else tuple(map(int, line["shape"].split(",")))
        for line in table(golden / f"state_dict_{row}.tsv")
    }
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    assert to_published(shapes, ptv3_name) == published
    assert from_published(published, shapes, ptv3_name) == shapes


def test_a_missing_or_an_unexpected_name_is_refused():
    own = ["head.weight", "head.bias"]
    with pytest.raises(ValueError, match=r"1 missing \(seg_head.bias\), 0 unexpected"):
        from_published({"seg_head.weight": 0}, own, ptv3_name)
    published = {"seg_head.weight": 0, "seg_head.bias": 0, "extra": 0}
    with pytest.raises(ValueError, match=r"0 missing, 1 unexpected \(extra\)"):
        from_published(published, own, ptv3_name)
    with pytest.raises(ValueError, match="no weight named 'backbone.unet.encoder.0.blocks.0.x.y'"):
        ptv3_name("backbone.unet.encoder.0.blocks.0.x.y")
