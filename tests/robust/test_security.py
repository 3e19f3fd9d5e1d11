"""Files from elsewhere run no code, name no class of another library, and write nowhere else."""

import ast
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import pctx
from pctx.checkpoint import backbone_class, load_checkpoint
from pctx.convert import read_published
from pctx.data.io.formats import read
from tests.toy import toy_checkpoint

PACKAGE = Path(pctx.__file__).parent


class Hostile:
    """Writes a file where it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch hacked",)


def saved(path, content):
    torch.save(content, path)
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("reader", [load_checkpoint, read_published])
def test_a_pickle_that_runs_code_is_refused_in_a_sentence(reader, zipped, place):
    path = place / "model.pt"
    torch.save({"format": "x", "weights": Hostile()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"model\.pt: ") as told:
        reader(path)
    assert "\n" not in str(told.value)
    path.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ValueError, match=r"model\.pt: "):
        reader(path)
    assert not (place / "hacked").exists()


def test_a_checkpoint_to_resume_from_runs_no_code(place):
    from pctx.engine import checkpoints

    source = Path(checkpoints.__file__).read_text()
    assert "weights_only=True" in source and "weights_only=False" not in source
    path = saved(place / "last.ckpt", {"epoch": 1, "callbacks": Hostile()})
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    assert not (place / "hacked").exists()


@pytest.mark.parametrize(
    "target",
    [
        *("os.system", "subprocess.Popen", "builtins.eval", "torch.load", "pathlib.Path", ""),
        *("pctx.checkpoint.load_checkpoint", "pctx.models.backbone.Backbone.__init__", "a.b.c"),
        *("pctx.models.factory.create_model", "pctx.models...os.system", "pctx.models.unet.torch"),
    ],
)
def test_a_model_that_names_what_is_no_backbone_is_refused_and_nothing_is_called(target, place):
    checkpoint = toy_checkpoint()
    object.__setattr__(checkpoint, "backbone", target)
    object.__setattr__(checkpoint, "arguments", {"command": "touch hacked", "args": "hacked"})
    checkpoint.save(place / "model.pt")
    with pytest.raises(ValueError, match="not a backbone|import .* first|no such"):
        load_checkpoint(place / "model.pt").build()
    assert not (place / "hacked").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("weights", {"a": 3}), ("weights", [1]), ("grid_size", "x"), ("labels", 7), ("features", {})],
)
def test_a_model_file_of_other_values_is_a_damaged_one(key, value, place):
    toy_checkpoint().save(place / "model.pt")
    content = torch.load(place / "model.pt", weights_only=True)
    saved(place / "model.pt", {**content, key: value})
    with pytest.raises(ValueError, match=r"model\.pt: a damaged pctx model file"):
        load_checkpoint(place / "model.pt")


def test_a_model_with_arguments_of_another_class_is_refused(place):
    toy_checkpoint().save(place / "model.pt")
    content = torch.load(place / "model.pt", weights_only=True)
    content["model"]["arguments"]["nonsense"] = 1
    saved(place / "model.pt", content)
    with pytest.raises(ValueError, match="arguments are not those of its class.*nonsense"):
        load_checkpoint(place / "model.pt").build()


def test_backbones_are_those_of_pctx_or_imported_by_whoever_runs():
    with pytest.raises(ValueError, match=r"import antigravity first"):
        backbone_class("antigravity.Backbone")


def test_no_module_evaluates_text_runs_a_shell_or_unpickles_files():
    forbidden = {"eval", "exec", "compile", "system", "popen", "extractall", "extract_all"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            module = ""
            if isinstance(node.func, ast.Attribute):
                called, owner = node.func.attr, node.func.value
                module = owner.id if isinstance(owner, ast.Name) else "?"
            words = {word.arg: word.value for word in node.keywords}
            where = f"{path.relative_to(PACKAGE)}:{node.lineno}: {module}.{called}"
            if called in ("eval", "exec", "compile"):
                # model.eval(), re.compile() and torch.compile() are others of that name
                assert module not in ("", "builtins"), where
            elif called in forbidden and module in ("os", "zipfile", "tarfile", "archive"):
                raise AssertionError(where)
            for name in ("shell", "allow_pickle"):
                value = words.get(name)
                assert not (isinstance(value, ast.Constant) and value.value is True), where
            if (module, called) == ("torch", "load"):
                assert isinstance(words.get("weights_only"), ast.Constant), where
                assert words["weights_only"].value is True, where
            assert (module, called) not in {("pickle", "load"), ("pickle", "loads")}, where
            assert (module, called) != ("yaml", "load"), where


@pytest.mark.parametrize("name", ["../../hacked.npy", "{}/hacked.npy", "..\\hacked.npy"])
def test_an_archive_never_writes_outside_nor_anywhere(name, place):
    folder = place / "a/b"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "scan.npz", "w") as archive:
        with archive.open("coord.npy", "w") as entry:
            np.lib.format.write_array(entry, np.zeros((3, 3), np.float32))
        archive.writestr(name.format(place), b"x")
    try:
        read(folder / "scan.npz")
    except ValueError as error:
        assert "scan.npz" in str(error)
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["scan.npz"]


def test_objects_in_arrays_are_never_loaded(place):
    np.save(place / "a.npy", np.array([Hostile(), 1], dtype=object), allow_pickle=True)
    np.savez(place / "a.npz", coord=np.array([Hostile()], dtype=object))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(ValueError, match=name):
            read(place / name)
    assert not (place / "hacked").exists()
