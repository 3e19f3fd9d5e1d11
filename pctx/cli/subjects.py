"""What the subjects of `pctx benchmark` share: keys, voxels, progress, table, row of a csv file."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from pctx.cli.config import UsageError, pick_device, unquoted
from pctx.cli.records import add_record, as_csv, check_records
from pctx.cli.tables import print_whole

if TYPE_CHECKING:
    from pctx.inference.benchmark import Scene

log = logging.getLogger(__name__)

_Schema = TypeVar("_Schema")
_Scene = TypeVar("_Scene", bound="SceneConfig")

_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "int": "a whole number",
        "float": "a number",
        "list[int]": "whole numbers in brackets, as [1000,2000]",
    }
)
"""What a value must be, by the type of its key."""


@dataclass
class SceneConfig:
    """The keys that every subject with voxels of a scan has."""

    threads: int = field(default=1, metadata={"is": "of torch; one: time of the process"})
    device: str = field(default="cpu", metadata={"is": "cpu, cuda, auto"})
    file: str | None = field(default=None, metadata={"is": "a scan; else a drive is simulated"})
    grid_size: float = field(default=0.05, metadata={"is": "metres; the voxels of file"})
    csv: str | None = field(default=None, metadata={"is": "a file to which rows are added"})


def describe_keys(schema: type[Any]) -> str:
    """List the keys of a dataclass, its own first, with defaults and what they are."""
    lines = []
    for f in _own_first(schema):
        default = "[…]" if f.default is MISSING else "" if f.default is None else f.default
        lines.append(f"{f.name}={default}  {f.metadata['is']}")
    return "\n\n".join(lines)


def parse_keys(schema: type[_Schema], arguments: Sequence[str]) -> _Schema:
    """Read key=value, in Hydra's grammar of values; whole numbers must be 1 or more.

    Raises:
        UsageError: a key is not known, or a value does not suit it.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    values = OmegaConf.structured(schema)
    types = {f.name: str(f.type) for f in _own_first(schema)}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise UsageError(unquoted(argument))
        if key not in types:
            close = get_close_matches(key, types, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(types)}"
            raise UsageError(f"there is no key {key!r}; {hint}")
        try:
            values[key] = OverridesParser.create().parse_override(argument).value()
        except HydraException as error:
            raise UsageError(unquoted(argument)) from error
        except OmegaConfBaseException as error:
            kind = _KINDS.get(types[key], "a name")
            raise UsageError(f"{key} takes {kind}, found {text!r}") from error
    config: _Schema = OmegaConf.to_object(values)  # type: ignore[assignment]
    for key, kind in types.items():
        value = getattr(config, key)
        if kind == "int" and value < 1:
            raise UsageError(f"{key} must be 1 or more, found {value}")
        if kind == "list[int]" and (min(value, default=1) < 1 or len(set(value)) < len(value)):
            raise UsageError(f"{key} must be different numbers, 1 or more, found {value}")
        if kind == "float" and not 0 < value < math.inf:
            raise UsageError(f"{key} must be above 0 metres, found {value}")
    return config


def begin(
    schema: type[_Scene], arguments: Sequence[str], columns: Callable[[_Scene], Sequence[str]]
) -> _Scene:
    """Read the keys of a subject, find its device, and see that its row can be written.

    Raises:
        UsageError: as `parse_keys`; or there is no such device, or the file has other columns.
    """
    config = parse_keys(schema, arguments)
    if config.csv is not None:
        check_records(Path(config.csv), columns(config))
    return replace(config, device=pick_device(config.device))


def find_scene(file: str | None, grid_size: float) -> tuple[Scene, float]:
    """Give voxels to measure with, of a file or a simulated drive, and how many there are."""
    from pctx.inference.drive import drive_voxels, slab

    if file is None:
        return drive_voxels, math.inf
    import torch

    from pctx.data.io.formats import read
    from pctx.geometry.grid import voxelize

    cloud = read(Path(file))
    grid_coord = torch.from_numpy(voxelize(cloud.coord[cloud.finite], grid_size).grid_coord)
    n = len(grid_coord)
    if n == 0:
        raise ValueError(f"{file}: no points to measure with")
    log.info("%s: %s voxels; sizes above that are left out", file, f"{n:,}")
    return partial(slab, grid_coord), n


@contextmanager
def measuring(threads: int) -> Iterator[Callable[[str], object]]:
    """Set torch's threads, and say on stderr what is being measured.

    In one place of a terminal; elsewhere line by line.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if not sys.stderr.isatty():
            yield log.info
            return
        from rich.console import Console

        with Console(stderr=True).status("") as status:
            yield status.update
    finally:
        torch.set_num_threads(before)


def print_table(
    rows: Iterable[Sequence[str]],
    here: Mapping[str, str],
    threads: int,
    caption: str,
    headings: Sequence[str] = ("", "voxels", "ms", "plainer way", "ms", "ratio", "target"),
) -> None:
    """Print rows under their headings."""
    from rich.table import Table

    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        title=f"{here['device']}, {here['cpu']}, {threads} thread{'s' if threads > 1 else ''}",
        caption=caption,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
    )
    for heading in headings:
        number = heading not in ("", "plainer way", "target")
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    print_whole(table)


def write_row(row: Mapping[str, object], columns: Sequence[str], csv: str | None) -> None:
    """Add a row to a csv file, or print it."""
    if csv is None:
        typer.echo(as_csv(row, columns, header=True), nl=False)
    else:
        add_record(Path(csv), row, columns)
        log.info("%s: a row more", csv)


def short(value: float) -> str:
    """Give a few digits of a figure."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def mark(met: bool) -> str:
    """Tell whether a target is met."""
    return "✓" if met else "✗"


def _own_first(schema: type[Any]) -> list[Field[Any]]:
    """List the fields of a dataclass, those that it inherits last."""
    return sorted(fields(schema), key=lambda f: f.name not in schema.__annotations__)
