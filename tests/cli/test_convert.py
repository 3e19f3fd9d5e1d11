"""pctx convert, as a user types it."""

import numpy as np
import pytest
import torch

from pctx.checkpoint import load_checkpoint
from pctx.data.io.formats import read
from tests.test_convert import PTV3
from tests.toy import toy_checkpoint

SMALL = [word for name, value in PTV3.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def published(golden, tmp_path):
    """A published checkpoint of sixteen classes."""
    path = tmp_path / "ptv3.pth"
    path.write_bytes((golden / "pointcept_ckpt" / "ptv3_semseg.pth").read_bytes())
    return path


def test_published_weights_label_a_scan_with_nothing_else_told(pctx, published, tmp_path):
    arguments = ["--model", "ptv3_base", "--card", "nuscenes", *SMALL]
    code, out, err = pctx("convert", "ptv3.pth", "-o", "model.pt", *arguments)
    assert (code, out) == (0, ""), err
    checkpoint = load_checkpoint(tmp_path / "model.pt")
    assert checkpoint.labels.names[0] == "barrier"
    assert checkpoint.features.fields == ("sensor_coord", "intensity")
    rng = np.random.default_rng(0)
    scan = np.concatenate([rng.uniform(-20, 20, (500, 3)), rng.random((500, 1))], axis=1)
    scan.astype("<f4").tofile(tmp_path / "scan.bin")
    code, _, err = pctx("predict", "model.pt", "scan.bin", "-o", "out.npz")
    assert code == 0, err
    assert len(read(tmp_path / "out.npz")) == 500

    assert pctx("convert", "model.pt", "-o", "back.pth", "--to", "pointcept")[0] == 0
    there, back = (torch.load(tmp_path / f)["state_dict"] for f in ("ptv3.pth", "back.pth"))
    assert set(there) == set(back)
    assert all(torch.equal(there[key], back[key]) for key in there)


def test_flags_say_what_the_model_reads(pctx, published, tmp_path):
    flags = ["--features", "color,intensity", "--scale", "intensity=255", "--center", "color=0"]
    arguments = ["--model", "ptv3", "--card", "nuscenes", "--grid", "0.1", *SMALL, *flags]
    assert pctx("convert", "ptv3.pth", "-o", "model.pt", *arguments)[0] == 0
    checkpoint = load_checkpoint(tmp_path / "model.pt")
    assert checkpoint.grid_size == 0.1
    assert checkpoint.features.scales == {"color": 127.5, "intensity": 255}
    assert checkpoint.features.centers == {"color": 0}


def test_a_misfit_is_reported_in_a_few_lines(pctx, published, tmp_path):
    arguments = ["--model", "ptv3_base", "--card", "semantic_kitti"]
    code, out, err = pctx("convert", "ptv3.pth", "-o", "model.pt", *arguments)
    assert code == 1
    assert err.startswith(
        "pctx: ptv3.pth: the weights do not fit ptv3_base with 4 channels and 19 classes; --model"
    )
    lines = out.splitlines()
    assert 1 <= len(lines) <= 12
    assert "of another shape: backbone.embedding.stem.conv.weight (16, 5, 5, 5, 4)" in out
    assert lines[-1].endswith(" more")
    assert not (tmp_path / "model.pt").exists()


NAMED = ["--model", "ptv3", "--card", "nuscenes"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ptv3.pth", "-o", "m.pt"], 2, "--model is needed"),
        (["ptv3.pth", "-o", "m.pt", "--model", "ptv3"], 2, "--card is needed"),
        (["ptv3.pth", "-o", "m.pt", "--model", "ptv9", "--card", "nuscenes"], 2, "'ptv9'"),
        (["ptv3.pth", "-o", "m.pt", "--model", "swin3d", "--card", "nuscenes"], 2, "of Swin3D"),
        (["ptv3.pth", "-o", "m.pt", "--model", "ptv3", "--card", "mars"], 1, "known: "),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--grid", "0"], 2, "--grid must be above 0"),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--grid", "nan"], 2, "--grid must be above 0"),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--set", "deep=1"], 2, "no argument 'deep'"),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--set", "depths=[1]"], 2, "depths must have 5"),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--set", "depths=1"], 2, "pctx: "),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--set", "depths"], 2, "--set takes KEY=VALUE"),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--features", "color,color"], 2, "repeat"),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--scale", "color=1"], 2, "go with --features"),
        (["ptv3.pth", "-o", "m.pt", *NAMED, "--scale", "color=x"], 2, "takes FIELD=NUMBER"),
        (["no.pth", "-o", "m.pt", *NAMED], 1, "no.pth: no such file"),
        (["toy.pt", "-o", "m.pt", *NAMED], 1, "'format' in it is no tensor"),
        (["ptv3.pth", "-o", "ptv3.pth", *NAMED, "--overwrite"], 2, "the file that is read"),
        (["ptv3.pth", "-o", "toy.pt", *NAMED], 1, "toy.pt: exists already"),
        (["toy.pt", "-o", "m.pth", "--to", "mars"], 2, "--to must be pointcept"),
        (["ptv3.pth", "-o", "m.pth", "--to", "pointcept"], 1, "not a pctx model file"),
    ],
)
def test_what_cannot_be_converted_is_told_in_one_sentence(
    pctx, published, tmp_path, arguments, code, words
):
    toy_checkpoint().save(tmp_path / "toy.pt")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    found, _, err = pctx("convert", *arguments)
    assert found == code, err
    assert err.startswith("pctx: ") and err.count("\n") == 1
    assert words in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
