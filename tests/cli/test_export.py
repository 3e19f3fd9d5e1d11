"""pctx export, as a user types it, and the page that runs what it writes."""

import builtins
import json
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pctx.cli.main import main
from pctx.data.io.formats import read, write
from pctx.inference.exported import FACTS, read_facts
from pctx.inference.predictor import Predictor
from tests.toy import LABELS, toy_checkpoint, toy_cloud

PAGE = Path(__file__).resolve().parents[2] / "docs" / "export.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a toy model, and its network in both forms."""
    pytest.importorskip("onnxruntime", reason="pip install 'pctx[export]'")
    folder = tmp_path_factory.mktemp("export")
    toy_checkpoint().save(folder / "model.pt")
    arguments = ["export", str(folder / "model.pt"), "-o", str(folder / "net.pt2"), "--onnx"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pctx", *arguments])
        with pytest.raises(SystemExit) as done:
            main()
    assert not done.value.code
    return folder


def test_both_files_tell_how_to_feed_them(folder):
    for name in ("net.pt2", "net.onnx"):
        facts = read_facts(folder / name)
        assert facts.grid_size == 0.5 and facts.temperature == 1
        assert facts.features.fields == ("height",)
        assert facts.labels == LABELS
        assert "feat" in facts.inputs and "levels_0_windows_0_index" in facts.inputs
    with zipfile.ZipFile(folder / "net.pt2") as archive:
        (entry,) = [each for each in archive.namelist() if each.endswith(FACTS)]
        assert json.loads(archive.read(entry))["model"]["arguments"]["channels"] == [8, 16]


def test_the_page_labels_a_scan_as_the_model_does(folder, monkeypatch):
    monkeypatch.chdir(folder)
    cloud = toy_cloud(label=False)
    cloud.coord[7] = np.nan
    write(Path("scan.laz"), cloud)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert "onnxruntime" in code and "torch.export.load" in code
    exec(compile(code, str(PAGE), "exec"), {})
    scan = read(Path("scan.laz"))
    expected = Predictor("model.pt")(scan)
    found = read(Path("out.laz")).label
    # Equal but where two classes tie to the last digits.
    assert np.mean(found == expected.raw) > 0.999


def test_a_file_without_the_facts_is_refused(folder, tmp_path):
    import onnx

    graph = onnx.load(folder / "net.onnx")
    del graph.metadata_props[:]
    onnx.save(graph, tmp_path / "bare.onnx")
    with pytest.raises(ValueError, match=r"bare\.onnx: no file of pctx export"):
        read_facts(tmp_path / "bare.onnx")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["model.pt", "-o", "net.pth"], 2, "-o must end in .pt2 or .onnx, found net.pth"),
        (["model.pt", "-o", "there.pt2"], 1, "there.pt2: exists already; --overwrite replaces it"),
        (["model.pt", "-o", "new.pt2", "--onnx"], 1, "new.onnx: exists already"),
        (["model.pt", "-o", "folder.pt2"], 2, "-o folder.pt2 is a folder"),
        (["none.pt", "-o", "net.pt2"], 1, "none.pt: no such model file"),
    ],
)
def test_what_cannot_be_exported_is_told_in_one_sentence(pctx, tmp_path, arguments, code, words):
    toy_checkpoint().save(tmp_path / "model.pt")
    for name in ("there.pt2", "new.onnx"):
        (tmp_path / name).touch()
    (tmp_path / "folder.pt2").mkdir()
    found, _, err = pctx("export", *arguments)
    assert found == code, err
    assert err.startswith("pctx: ") and err.count("\n") == 1
    assert words in err
    assert not (tmp_path / "net.pt2").exists()


def test_without_the_extra_the_way_to_it_is_told(pctx, tmp_path, monkeypatch):
    toy_checkpoint().save(tmp_path / "model.pt")
    plain = builtins.__import__

    def without(name, *rest):
        if name == "onnx":
            raise ImportError("No module named 'onnx'", name="onnx")
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    code, _, err = pctx("export", "model.pt", "-o", "net.onnx")
    assert code == 1
    assert err.startswith(
        "pctx: ONNX files need onnx, which is not here; pip install 'pctx[export]'"
    )
