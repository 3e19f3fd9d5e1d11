"""check_settings: what a run asks of the trainer and of the machine, before anything is read."""

from __future__ import annotations

from typing import Any

from pctx.cli.config import UsageError

_LEAST = {
    "seed": 0,
    "threads": 1,
    "patience": 1,
    "max_bad_steps": 1,
    "trainer.max_epochs": -1,
    "trainer.num_nodes": 1,
    "trainer.accumulate_grad_batches": 1,
    "trainer.check_val_every_n_epoch": 1,
    "trainer.log_every_n_steps": 1,
}
"""Whole numbers, and the smallest of each; null where there need be none."""

_NUMBERS = ("optim.lr", "optim.weight_decay", "optim.layer_decay", "average")
"""Real numbers; their ranges are told by what takes them."""

_PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "auto")
_SHORT = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
"""Other names that Lightning has for them."""


def check_settings(config: Any) -> None:
    """Find out whether the numbers of a run are some, and whether this machine has what they need.

    Raises:
        UsageError: one is not, or it has not.
    """
    from omegaconf import OmegaConf

    for name, least in _LEAST.items():
        value = OmegaConf.select(config, name)
        if value is not None and not (isinstance(value, int) and value >= least):
            raise UsageError(f"{name} must be a whole number from {least} on, found {value}")
    for name in _NUMBERS:
        value = OmegaConf.select(config, name)
        if value is not None and not isinstance(value, int | float):
            raise UsageError(f"{name} must be a number, found {value}")
    clip = config.trainer.gradient_clip_val
    if clip is not None and not (isinstance(clip, int | float) and clip >= 0):
        raise UsageError(f"trainer.gradient_clip_val must be a norm, or null, found {clip}")
    _check_machine(config.trainer, config.compile)


def choose_precision(trainer: Any) -> str:
    """Give the precision of a run: `auto` is bf16-mixed where the machine multiplies bf16 itself.

    Elsewhere bf16 gains no time, and 32-true is the more exact.
    """
    import torch

    asked = _precision(trainer)
    if asked != "auto":
        return asked
    if trainer.accelerator != "cpu" and torch.cuda.is_available():
        gains = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        gains = any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
    return "bf16-mixed" if gains else "32-true"


def _precision(trainer: Any) -> str:
    return _SHORT.get(str(trainer.precision), str(trainer.precision))


def _check_machine(trainer: Any, compiled: bool) -> None:
    """Find out whether there is a GPU where one is needed; Lightning would take something else."""
    import torch

    on_gpu = torch.accelerator.is_available() and trainer.accelerator != "cpu"
    if compiled and not on_gpu:
        raise UsageError(
            "compile=true needs a GPU; on a CPU it takes minutes before the first step, and the "
            "dense parts of a network are then no faster"
        )
    strategy = trainer.strategy
    name = strategy if isinstance(strategy, str) else strategy.get("_target_", "")
    if "fsdp" in name.lower() and not on_gpu:
        raise UsageError(
            "trainer=fsdp needs GPUs, as it splits the model over them; trainer=ddp trains in "
            "processes of a CPU too"
        )
    precision = _precision(trainer)
    if precision not in _PRECISIONS:
        known = ", ".join(_PRECISIONS)
        raise UsageError(f"trainer.precision must be one of {known}, found {precision}")
    if precision == "16-mixed" and not on_gpu:
        raise UsageError("trainer.precision=16-mixed needs a GPU; a CPU has bf16-mixed")
