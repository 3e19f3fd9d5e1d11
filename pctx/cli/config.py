"""Configuration: where the yaml files lie, their schema, and how a composed run starts."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pctx

if TYPE_CHECKING:
    from torch import nn


class UsageError(ValueError):
    """The command line asks for something that cannot be meant; exit code 2."""


@dataclass
class TrainConfig:
    """The keys of `train.yaml`; a key that is not here is refused."""

    data: Any
    model: Any
    augment: Any
    criterion: Any
    optim: Any
    trainer: Any
    logger: Any
    name: str
    seed: int
    threads: int | None
    backend: str
    average: float | None
    patience: int | None
    max_bad_steps: int
    recompute: bool
    compile: bool
    save_every: Any
    resume: str | None
    init_from: str | None
    freeze: str | None


@dataclass
class EvaluateConfig:
    """The keys of `evaluate.yaml`."""

    data: Any
    checkpoint: str
    split: str
    views: int
    tile: float | None
    device: str
    backend: str
    boundary: float | None
    ranges: list[float]
    densities: list[float]
    calibrate: bool


@dataclass
class CheckConfig:
    """The keys of `check.yaml`."""

    data: Any
    workers: int
    json: bool


@dataclass
class PrepareConfig:
    """The keys of `prepare.yaml`."""

    data: Any
    workers: int | None
    splits: list[str] | None


def config_folder() -> Path:
    """Find `configs/`: beside the package in a checkout, inside it in a wheel."""
    package = Path(pctx.__file__).parent
    for folder in (package.parent / "configs", package / "configs"):
        if (folder / "train.yaml").is_file():
            return folder
    raise FileNotFoundError(f"no configs/ beside or in {package}: the installation is damaged")


def run_composed(name: str, overrides: Sequence[str], task: Callable[[Any, Path], object]) -> None:
    """Let Hydra compose `name`.yaml with overrides, then call task(config, run folder).

    Hydra's own flags (`-m`, `--cfg job`, `--info`, …) work as everywhere. What the task gives is
    what a sweeper goes by.
    """
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    register_schemas()
    # Hydra would print a failure itself and exit; raised, it becomes one sentence.
    os.environ["HYDRA_FULL_ERROR"] = "1"

    failures: list[BaseException] = []
    command, here = sys.argv, os.getpid()

    def entry(config: Any) -> object:
        sys.argv = _command_of_this_run(command)  # with which Lightning starts other processes
        try:
            if missing := sorted(OmegaConf.missing_keys(config)):
                raise UsageError(f"{missing[0]} is needed: add {missing[0]}=…")
            return task(config, Path(HydraConfig.get().runtime.output_dir))
        except (Exception, KeyboardInterrupt) as error:
            if os.getpid() != here:  # a job of a launcher, which hands it back
                raise
            failures.append(error)
            raise SystemExit from error

    # Hydra's flags go first: its parser takes overrides on one side of a flag only.
    words = sorted(overrides, key=_is_override)
    _check_flags(name, words)
    sys.argv = [f"pctx {name}", *words]
    try:
        hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=name)(entry)()
    except SystemExit:
        if not failures:
            raise
    if failures:
        raise failures[0]


def _command_of_this_run(command: list[str]) -> list[str]:
    """Give the words that start this run alone, in its folder, where it is one of a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import read_write

    job: Any = HydraConfig.get()
    if job.mode is not RunMode.MULTIRUN:
        return command
    with read_write(job):
        job.run.dir = job.runtime.output_dir  # which Lightning tells the others
    words = takewhile(lambda word: "=" not in word and not word.startswith("-"), command[1:])
    return [command[0], *words, *job.overrides.task]


def _check_flags(name: str, words: Sequence[str]) -> None:
    """Find out whether Hydra knows the flags: itself it would print a page about its own.

    Raises:
        UsageError: it does not.
    """
    from hydra._internal.utils import get_args_parser

    def refuse(message: str) -> NoReturn:
        raise UsageError(f"{message}; pctx {name} --help shows what there is")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    parser.parse_args(list(words))


def compose(name: str, overrides: Sequence[str]) -> Any:
    """Compose `name`.yaml outside a Hydra run."""
    import hydra

    register_schemas()
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(config_folder())):
        return hydra.compose(config_name=name, overrides=list(overrides))


def register_schemas() -> None:
    """Give Hydra the schemas of the runs."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="train_schema", node=TrainConfig)
    store.store(name="evaluate_schema", node=EvaluateConfig)
    store.store(name="check_schema", node=CheckConfig)
    store.store(name="prepare_schema", node=PrepareConfig)


def known_keys(group: str) -> list[str]:
    """List what may be set: the run's own keys, or those that a group's files have."""
    import yaml

    if not group:
        return [f.name for f in fields(TrainConfig)]
    folder = config_folder()
    paths = [*folder.glob(f"{group.replace('.', '/')}/*.yaml"), *folder.glob("feeding.yaml")]
    found = {str(key) for path in paths for key in yaml.safe_load(path.read_text("utf-8")) or {}}
    return [f"{group}.{key}" for key in sorted(found - {"defaults"})]


def known_options(group: str) -> list[str]:
    """List what may be chosen for a group such as `augment`."""
    return sorted(path.stem for path in (config_folder() / group).glob("*.yaml"))


def options_with(key: str) -> list[str]:
    """List the options of a key's group whose files set it at their top; none for a run's own."""
    import yaml

    group, _, name = key.rpartition(".")
    folder = config_folder() / group
    files = {option: folder / f"{option}.yaml" for option in known_options(group) if group}
    return [
        o for o, file in files.items() if name in (yaml.safe_load(file.read_text("utf-8")) or {})
    ]


def namesakes(key: str) -> list[str]:
    """List the keys of the same group that end with the same name, in any of its files."""
    import yaml

    group, name = key.split(".")[0], key.rpartition(".")[2]
    paths = (config_folder() / group).glob("*.yaml")
    found = {k for path in paths for k in _walk(group, yaml.safe_load(path.read_text("utf-8")))}
    if key in found:  # and only handed on to the dataset
        found -= {key, f"{group}.dataset.{name}"}
    return sorted(k for k in found if k.rpartition(".")[2] == name)


def _walk(prefix: str, tree: Any) -> Iterator[str]:
    for name, value in tree.items() if isinstance(tree, dict) else ():
        yield f"{prefix}.{name}"
        yield from _walk(f"{prefix}.{name}", value)


def value_of(key: str, overrides: Sequence[str]) -> str | None:
    """Give the text that the last override of a key sets, without its quotes; None for none."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for override in reversed(overrides):
        if override.split("=")[0] == key:
            try:
                value = OverridesParser.create().parse_override(override).value()
            except HydraException as error:
                raise UsageError(unquoted(override)) from error
            return None if value is None or str(value) == "" else str(value)
    return None


def unquoted(override: str) -> str:
    """Say that an override is not of Hydra's grammar, and what helps."""
    key, equals, value = override.partition("=")
    if not equals:
        if os.path.isdir(override):  # noqa: PTH112  (Path's ends at names too long)
            help_ = f"; a folder of scans is named by data=folder data.root={override}"
        elif override.endswith(".pt"):
            help_ = f"; a model is named by checkpoint={override}, or init_from= in training"
        else:
            help_ = ""
        return f"{override!r} is no override such as key=value{help_}"
    return f"{override!r} is not understood; quote the value: \"{key}='{value}'\""


def quoted(key: str, value: str | Path) -> str:
    """Make an override that sets a key to any text."""
    text = str(value).replace("'", "\\'")
    return f"{key}='{text}'"


def named_numbers(flag: str, pairs: Sequence[str]) -> dict[str, float]:
    """Read the FIELD=NUMBER pairs of a flag.

    Raises:
        UsageError: one is something else; infinite and undefined numbers are.
    """
    values = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            values[name] = float(text)
        except ValueError:
            values[name] = math.nan
        if not name or not math.isfinite(values[name]):
            raise UsageError(f"{flag} takes FIELD=NUMBER, such as intensity=0; found {pair!r}")
    return values


def overrides_of(run: Path) -> list[str]:
    """Read the overrides that a run was started with, from its `.hydra` folder."""
    import yaml

    file = run / ".hydra" / "overrides.yaml"
    if not file.is_file():
        raise FileNotFoundError(
            f"{run}: not the folder of a run, such as runs/NAME/DATE (it has no .hydra/{file.name})"
        )
    try:
        lines = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not a YAML file ({' '.join(str(error).split())})") from error
    if not isinstance(lines, list):
        raise ValueError(f"{file}: not the overrides of a run, such as `- optim.lr=0.01`")
    return [str(line) for line in lines]


def pick_device(name: str) -> str:
    """Turn `auto` into cuda where there is one, else cpu.

    Raises:
        UsageError: this machine has no such device.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"there is no device {name!r} here; use auto, cpu or what `pctx doctor` lists"
        ) from error
    return name


def choose_backend(model: nn.Module, name: str) -> None:
    """Let the sparse convolutions of a model ask for one engine.

    Raises:
        UsageError: there is no such engine.
        ImportError: it cannot be loaded.
    """
    from pctx.nn.sparse_conv import set_backend

    try:
        set_backend(model, name)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(str(error)) from error


def _is_override(argument: str) -> bool:
    return "=" in argument and not argument.startswith("-")
