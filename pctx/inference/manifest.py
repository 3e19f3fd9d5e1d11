"""What the results of a file depend on: a run that was stopped goes on only with the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pctx import __version__
from pctx.checkpoint import Checkpoint
from pctx.inference.predictor import Predictor


def describe(predictor: Predictor, source: Path, columns: Sequence[str]) -> str:
    """Say all that the results of a file depend on, as text to compare."""
    state = source.stat()
    told = {
        "pctx": __version__,
        "source": [str(source.resolve()), state.st_size, state.st_mtime_ns],
        "model": _digest(predictor.checkpoint),
        "grid_size": predictor.checkpoint.grid_size,
        "temperature": predictor.checkpoint.temperature,
        "tile": predictor.tile,
        "overlap": predictor.overlap,
        "views": [str(view) for view in predictor.views],
        "fill": dict(predictor.fill or {}),
        "vote": predictor.vote,
        "min_confidence": predictor.min_confidence,
        "skip": list(predictor.skip),
        "columns": list(columns),
    }
    return json.dumps(told, indent=1)


def _digest(checkpoint: Checkpoint) -> str:
    digest = hashlib.sha256(repr((checkpoint.backbone, checkpoint.arguments)).encode())
    digest.update(repr((checkpoint.features, checkpoint.labels)).encode())
    for name, value in checkpoint.weights.items():
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
