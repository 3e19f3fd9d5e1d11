"""Runs that go on: their overrides, their folder, and whether anything is left to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pctx.cli.config import UsageError, overrides_of, quoted, value_of

log = logging.getLogger(__name__)


def with_resume(arguments: list[str]) -> tuple[list[str], Path | None]:
    """Put the overrides of the run to resume before those given now, and write into its folder.

    Returns:
        The overrides, and the folder, where it is known already.

    Raises:
        UsageError: the folder given for a new run has one already.
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
    kept = [a for a in overrides_of(run) if a.split("=")[0] not in given]
    return [*kept, *arguments, quoted("hydra.run.dir", run)], run


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
