"""Runs that go on: their overrides, their folder, and whether anything is left to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pctx.cli.config import UsageError, overrides_of, quoted, value_of
from pctx.cli.lock import process_rank

log = logging.getLogger(__name__)

_KEPT = ("model", "optim", "experiment", "freeze", "init_from")
"""Keys of what a run goes on with as it was."""


def with_resume(arguments: list[str]) -> tuple[list[str], Path | None]:
    """Put the overrides of the run to resume before those given now, and write into its folder.

    Returns:
        The overrides, and the folder, where it is known already.

    Raises:
        UsageError: the folder given for a new run has one already; a model or an optimiser would
            not be the one that is resumed.
    """
    resume = value_of("resume", arguments)
    if resume is None:
        folder = value_of("hydra.run.dir", arguments)
        if folder is not None and (Path(folder) / "checkpoints" / "last.ckpt").is_file():
            raise UsageError(
                f"{folder}: holds a run already; choose another hydra.run.dir, or go on with "
                f"resume={folder}"
            )
        return arguments, None if folder is None or "$" in folder else Path(folder)
    run = Path(resume)
    given = {a.split("=")[0] for a in arguments}
    before = overrides_of(run)
    if (run / "checkpoints" / "last.ckpt").is_file():
        _tell_changes(run, [a for a in arguments if a not in before])
    kept = [a for a in before if a.split("=")[0] not in given]
    return [*kept, *arguments, quoted("hydra.run.dir", run)], run


def _tell_changes(run: Path, arguments: list[str]) -> None:
    """Say what differs from the run so far.

    Raises:
        UsageError: it is what the state in a checkpoint belongs to.
    """
    keys = {a: a.split("=")[0].lstrip("+~") for a in arguments if "=" in a}
    fixed = [key for key in keys.values() if key.replace("/", ".").split(".")[0] in _KEPT]
    if fixed:
        raise UsageError(
            f"{run}: goes on with its own model and optimiser, so {fixed[0]} cannot change; a new "
            f"run starts from its model: init_from={run / 'model.pt'}"
        )
    changed = [a for a, key in keys.items() if key != "resume" and not key.startswith("hydra")]
    if changed and process_rank() == 0:
        log.info("%s: from here on %s", run, " ".join(changed))


def find_state(run: Path, max_epochs: int | None) -> Path | None:
    """Find the checkpoint that a run goes on from; None where it was killed before the first.

    Raises:
        UsageError: nothing is left to do.
        ValueError: all checkpoints are damaged.
    """
    from pctx.engine.checkpoints import sound_checkpoint

    try:
        path, state = sound_checkpoint(run / "checkpoints")
    except FileNotFoundError:
        log.info("%s has no checkpoint yet: it starts from its beginning", run)
        return None
    _check_unfinished(run, state, max_epochs)
    return path


def _check_unfinished(run: Path, state: Mapping[str, Any], max_epochs: int | None) -> None:
    """Find out whether a run has epochs left, and a learning rate for them.

    Raises:
        UsageError: it has not.
    """
    new = f"a new run starts from its model: init_from={run / 'model.pt'}"
    done = state["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    about = state["callbacks"]["Checkpoints"]
    if max_epochs is not None and max_epochs >= 0:
        if 0 <= about["epochs"] < max_epochs:
            why = f"its learning rate ends after {about['epochs']} epochs"
            raise UsageError(f"{run}: {why}, and trainer.max_epochs={max_epochs}; {new}")
        if done >= max_epochs:
            raise UsageError(f"{run}: its {done} epochs are done; {new}")
    if about["finished"]:
        raise UsageError(f"{run}: its training has ended; {new}")
