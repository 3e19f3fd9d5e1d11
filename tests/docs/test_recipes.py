"""The pages that say how to add something: their files work as they stand there."""

import importlib.util
import inspect
import sys
from types import MappingProxyType

import numpy as np
import pytest
import yaml

from pctx.data.io import formats
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, write
from pctx.models import factory
from tests.docs import test_commands
from tests.docs.pages import ROOT, blocks, files_of
from tests.docs.world import full_cloud
from tests.models import test_contract as contract

DOCS = ROOT / "docs"


@pytest.fixture
def page_files(here, monkeypatch):
    """Write the files of a page; those of the package can be imported by their names in it."""

    def write_files(page):
        for name, text in files_of(page).items():
            path = here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if not name.startswith("pctx/"):
                continue
            module = name.removesuffix(".py").replace("/", ".")
            spec = importlib.util.spec_from_file_location(module, path)
            loaded = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, module, loaded)
            spec.loader.exec_module(loaded)
            package, _, last = module.rpartition(".")
            monkeypatch.setattr(sys.modules[package], last, loaded, raising=False)
        monkeypatch.syspath_prepend(here)

    return write_files


def run_python(page):
    """Run the Python of a page that is no file, from top to bottom; give its names."""
    names = {}
    for block in blocks(page, "python"):
        if block.text not in files_of(page).values():
            exec(compile(block.text, page.name, "exec"), names)
    return names


def run_bash(page, monkeypatch):
    for block in blocks(page, "bash"):
        for line in test_commands.commands(block):
            words = [word for word in line.split() if not word.startswith("PYTHONPATH")]
            arguments = test_commands.prepared(words, line, compose=False)
            if "--config-dir=." not in arguments and words[1] == "train":
                arguments = [*arguments, "--config-dir=."]
            assert test_commands.run(arguments, monkeypatch) == 0, line


@pytest.fixture
def flat(page_files, monkeypatch):
    page = DOCS / "add-a-model.md"
    page_files(page)
    rows = {**factory.MODELS, **run_python(page)["rows"]}
    for module in (factory, contract):
        name = "MODELS" if module is factory else "ROWS"
        monkeypatch.setattr(module, name, MappingProxyType(rows))
    return page


CONTRACT = [
    name
    for name in vars(contract)
    if name.startswith("test_")
    and set(inspect.signature(getattr(contract, name)).parameters) <= {"name", "model"}
]


def test_the_model_of_the_page_keeps_the_contract(flat):
    assert len(CONTRACT) > 5
    for name in CONTRACT:
        law = getattr(contract, name)
        given = {"name": "flat_tiny", "model": contract.make("flat_tiny").eval()}
        wanted = inspect.signature(law).parameters
        law(**{key: given[key] for key in wanted})


def test_the_yaml_of_the_page_lists_the_arguments_of_its_model(flat, here):
    said = yaml.safe_load((here / "model" / "flat.yaml").read_text())
    backbone = factory.MODELS["flat"].backbone
    assert said.pop("_target_") == f"{backbone.__module__}.{backbone.__name__}"
    parameters = inspect.signature(backbone).parameters.values()
    assert said == {p.name: p.default for p in parameters if p.name != "in_channels"}


def test_the_model_of_the_page_trains(flat, monkeypatch):
    run_bash(flat, monkeypatch)


def test_the_dataset_of_the_page_is_checked_trained_on_and_predicted(page_files, here, monkeypatch):
    page = DOCS / "add-a-dataset.md"
    (here / "stations").mkdir()
    for seed, name in enumerate("abcd"):
        cloud = full_cloud(seed, 300)
        np.savetxt(here / "stations" / f"{name}.xyz", cloud.coord)
        np.savetxt(here / "stations" / f"{name}.lab", cloud.label, fmt="%d")
    page_files(page)
    run_bash(page, monkeypatch)
    sys.modules.pop("stations", None)
    assert len(read(here / "a.npz")) == 300


@pytest.fixture
def kestrel(page_files, monkeypatch):
    page = DOCS / "add-a-format.md"
    page_files(page)
    (block,) = (b for b in blocks(page, "python") if b.text.startswith("from pctx.data.io import"))
    names = {}
    exec(block.text, names)
    monkeypatch.setattr(formats, "FORMATS", MappingProxyType({**formats.FORMATS, **names["row"]}))
    monkeypatch.setattr(formats, "READABLE", (*formats.READABLE, ".kst"))
    monkeypatch.setattr(formats, "WRITABLE", (*formats.WRITABLE, ".kst"))
    return page


def test_the_format_of_the_page_is_read_written_and_predicted(kestrel, here, monkeypatch):
    run_python(kestrel)
    run_bash(kestrel, monkeypatch)
    assert len(read(here / "labelled.kst")) == len(read(here / "scan.laz"))


def test_the_format_of_the_page_refuses_what_is_cut_short(kestrel, here):
    write(here / "a.kst", full_cloud(0, 10))
    (here / "a.kst").write_bytes((here / "a.kst").read_bytes()[:-5])
    with pytest.raises(ReadError, match=r"a\.kst: its head says 10 points, the file holds 9"):
        read(here / "a.kst")


def test_every_recipe_has_a_test_here_or_beside_its_subject():
    assert {page.stem for page in DOCS.glob("add-a-*.md")} == {
        "add-a-model", "add-a-dataset", "add-a-format", "add-a-transform"
    }  # fmt: skip
