"""environment.json: what a run was made with."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

NAME = "environment.json"

_PACKAGES = ("torch", "pytorch-lightning", "torchmetrics", "numpy", "scipy", "hydra-core")


def keep_facts(config: Any, run: Path) -> None:
    """Write versions, machine, threads, seed, command and git's state; once more at each resume."""
    import torch

    from pctx.cli.records import facts
    from pctx.data.io.atomic import replacing

    path = run / NAME
    device = "cuda" if torch.cuda.is_available() else "cpu"
    known = {name: found for name in _PACKAGES if (found := _version(name))}
    now = {
        **facts(device),
        "packages": known,
        "threads": torch.get_num_threads(),
        "seed": config.seed,
        "command": sys.argv,
        "folder": str(Path.cwd()),
        "changes": _changes(),
    }
    before = json.loads(path.read_text()) if path.is_file() else []
    with replacing(path, overwrite=True) as beside:
        beside.write_text(json.dumps([*before, now], indent=1) + "\n")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _changes() -> str:
    """Give the commit of the current folder, and what differs from it; empty outside of git."""
    found = []
    for words in (["rev-parse", "HEAD"], ["status", "--porcelain"], ["diff", "HEAD"]):
        try:
            done = subprocess.run(["git", *words], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError, UnicodeDecodeError):
            return ""
        found.append(done.stdout)
    return "\n".join(found)
