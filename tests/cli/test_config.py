"""Configs and code say the same; each config composes; a fact is written once."""

import inspect
from pathlib import Path

import pytest
import yaml
from hydra.errors import ConfigCompositionException
from hydra.utils import get_class
from omegaconf import OmegaConf

from pctx.cli.config import compose, config_folder
from pctx.models.factory import MODELS

YAMLS = sorted(config_folder().rglob("*.yaml"))
BLOCK = 12


def options(group):
    return sorted(p.stem for p in (config_folder() / group).glob("*.yaml"))


def with_data(*overrides):
    return compose("train", [*overrides, "name=test"])


def test_every_model_has_a_yaml_and_a_row():
    assert options("model") == sorted(MODELS)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_yaml_lists_every_argument_as_the_row_has_it(name):
    written = OmegaConf.to_container(with_data(f"model={name}").model)
    cls = get_class(written.pop("_target_"))
    parameters = inspect.signature(cls).parameters
    expected = {k: p.default for k, p in parameters.items() if k != "in_channels"}
    expected |= dict(MODELS[name].arguments)
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in expected.items()}
    assert cls is MODELS[name].backbone
    assert written == plain


@pytest.mark.parametrize(
    "override",
    [
        f"{group}={name}"
        for group in ("data", "model", "augment", "criterion", "optim", "trainer", "experiment")
        for name in options(group)
    ],
)
def test_every_option_composes(override):
    needs_root = override.startswith(("data=", "experiment="))
    needs_root &= override not in ("data=street", "experiment=demo")
    config = with_data(override, *(["data.root=x"] if needs_root else []))
    assert not OmegaConf.missing_keys(config)
    OmegaConf.to_container(config, resolve=True)


@pytest.mark.parametrize("override", ["modle=ptv3", "sede=3", "data.grid=1", "model.chanels=[1]"])
def test_a_misspelt_key_is_refused_by_name(override):
    with pytest.raises(ConfigCompositionException, match=override.split("=")[0].split(".")[-1]):
        with_data(override)


def test_a_misspelt_option_lists_those_there_are():
    with pytest.raises(Exception, match="ptv3_tiny"):
        with_data("model=ptv9")


def test_no_two_configs_share_twelve_lines():
    seen: dict[tuple[str, ...], Path] = {}
    for path in YAMLS:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        blocks = {tuple(lines[i : i + BLOCK]) for i in range(len(lines) - BLOCK + 1)}
        for block in blocks:
            assert seen.setdefault(block, path) == path


def test_experiments_are_short_deltas():
    for path in (config_folder() / "experiment").glob("*.yaml"):
        assert path.read_text().startswith("# @package _global_")
        assert len(path.read_text().splitlines()) <= 25


def test_targets_exist_and_their_arguments_are_those_of_the_constructor():
    for path in (config_folder() / "criterion").glob("*.yaml"):
        node = yaml.safe_load(path.read_text())
        cls = get_class(node["_target_"])
        assert set(node) - {"_target_"} == set(inspect.signature(cls).parameters)
