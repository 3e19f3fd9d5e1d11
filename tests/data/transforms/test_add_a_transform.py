"""docs/add-a-transform.md: its class, its yaml and its test work as they stand there."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hydra.utils import instantiate

from pctx.cli.config import compose
from tests.docs.pages import files_of
from tests.toy import toy_cloud

PAGE = Path(__file__).resolve().parents[3] / "docs" / "add-a-transform.md"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the page names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in files_of(PAGE).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    yield tmp_path
    sys.modules.pop("wet", None)


def test_the_proof_of_the_page_holds(folder):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    exec(compile(code, PAGE.name, "exec"), {})


def test_the_command_of_the_page_adds_the_step(folder):
    commands = re.findall(r"pctx train (.*)$", PAGE.read_text(), re.M)
    overrides = next(line.split() for line in commands if "_target_" in line)
    steps = instantiate(compose("train", [*overrides, "name=test"]).augment, _convert_="all")
    assert list(steps)[-1] == "wet"
    assert steps["wet"].ratio == 0.5


def test_the_recipe_of_the_page_is_the_step_with_its_defaults(folder):
    step = instantiate(yaml.safe_load((folder / "augment" / "wet.yaml").read_text())["wet"])
    assert step == type(step)()
    cloud = toy_cloud(50)
    buried = replace(cloud, coord=cloud.coord - np.float32(10))
    assert 20 < len(step(buried, np.random.default_rng(0))) < 50


def test_a_wrong_argument_is_refused_by_name(folder):
    step = type(instantiate(yaml.safe_load((folder / "augment" / "wet.yaml").read_text())["wet"]))
    with pytest.raises(ValueError, match=r"WetRoad: ratio must be a number in 0\.\.1, found 2"):
        step(ratio=2)
