"""What `pctx view` refuses before it reads anything: flags that are none or say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pctx.cli.config import UsageError
from pctx.cli.exhibits import LOOKED_INTO, check_colors
from pctx.cli.structure import STRUCTURES

_GROUNDS = ("dark", "light")


def read_size(text: str) -> tuple[int, int]:
    """Read WIDTHxHEIGHT, in pixels.

    Raises:
        UsageError: it is no such size, or too small or large.
    """
    from pctx.vis.figure import LARGEST_SIZE, SMALLEST_SIZE

    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise UsageError(f"--size takes WIDTHxHEIGHT, such as 1600x1200; found {text!r}")
    size = int(parts[0]), int(parts[1])
    if not SMALLEST_SIZE <= min(size) <= max(size) <= LARGEST_SIZE:
        raise UsageError(
            f"--size takes {SMALLEST_SIZE} to {LARGEST_SIZE} pixels a side; found {text!r}"
        )
    return size


def check_names(
    colors: tuple[str, ...],
    perspective: str,
    ground: str,
    model: Path | None,
    predicted: Path | None,
) -> None:
    """Refuse names of colours, views and grounds that are none, and two sources of a prediction.

    Raises:
        UsageError: there is one.
    """
    from pctx.vis.camera import VIEWS
    from pctx.vis.fields import COLORS

    check_colors(colors, model, predicted, (*COLORS, *STRUCTURES, *LOOKED_INTO))
    if model is not None and predicted is not None:
        raise UsageError("--model and --predicted both say what is predicted; leave one out")
    if perspective not in VIEWS:
        raise UsageError(f"--from must be one of {', '.join(VIEWS)}; found {perspective!r}")
    if ground not in _GROUNDS:
        raise UsageError(f"--background must be one of {', '.join(_GROUNDS)}; found {ground!r}")


def check_flags(
    colors: tuple[str, ...],
    model: Path | None,
    flags: Mapping[str, str | int | float | None],
    inside: Mapping[str, str | int | float | None],
) -> None:
    """Refuse flags that say nothing about what is shown."""
    for flag, value in inside.items():
        if value is not None and not set(colors) & set(LOOKED_INTO):
            raise UsageError(f"{flag} goes with --color attention only; leave it out")
    for flag, value in flags.items():
        if value is not None and not set(colors) & set(STRUCTURES):
            raise UsageError(f"{flag} goes with --color order or window only; leave it out")
        if value is not None and model is not None:
            raise UsageError(f"{flag} is the model's own; leave out {flag} or --model")


def check_outputs(picture: Path | None, html: Path | None, overwrite: bool) -> None:
    """Find out before anything is read whether the files can be written."""
    from pctx.vis.turn import MOVING, check_moving

    for path in (picture, html):
        if path is not None and path.exists() and not overwrite:
            raise FileExistsError(f"{path}: exists already; --overwrite replaces it")
    if picture is not None and picture.suffix.lower() in MOVING:
        check_moving(picture)
