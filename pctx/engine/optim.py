"""Parameter groups: which weight learns at which rate, decays, and is a matrix of a block."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import nn

from pctx.models.segmentor import Segmentor


def parameter_groups(
    model: Segmentor,
    *,
    weight_decay: float,
    lr: float,
    lr_factors: Mapping[str, float] | None = None,
    layer_decay: float = 1.0,
    decay: Literal["matrices", "all"] = "matrices",
    no_decay: Sequence[str] = (),
) -> list[dict[str, Any]]:
    r"""Split the parameters by rate and decay.

    Patterns are regular expressions that are looked for anywhere in a parameter's name, such as
    `backbone.encoder.0.blocks.1.norm.weight`.

    Args:
        model: its frozen parameters are left out.
        weight_decay: of the weights that decay.
        lr: the rate where nothing else is said.
        lr_factors: a share of the rate by pattern, the first that is found; PTv3 is published with
            {blocks: 0.1}.
        layer_decay: the share of each layer in the rate of the one nearer to the head (see
            `depths_from_head`), for fine-tuning. (Clark et al., ELECTRA, 2020.)
        decay: `matrices` leaves norms, biases and other vectors as they are; `all` lets them decay
            too, as the published recipes do.
        no_decay: patterns of parameters that do not decay.

    Returns:
        Groups for an optimiser. Each also says by `hidden` whether it holds weights of layers
        inside the blocks, which `Muon` steps as matrices.

    Raises:
        ValueError: a rate or share is not above 0, a pattern is in no name, or nothing is left to
            learn.
    """
    factors = dict(lr_factors or {})
    shares = {f"lr_factors.{pattern}": share for pattern, share in factors.items()}
    for name, value in {"lr": lr, "layer_decay": layer_decay, **shares}.items():
        if not value > 0:
            raise ValueError(f"optim.{name} must be above 0, found {value}")
    if decay not in ("matrices", "all"):
        raise ValueError(f"optim.decay must be matrices or all, found {decay!r}")
    learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not learned:
        raise ValueError("every parameter is frozen, so nothing is left to learn; freeze fewer")
    _check_patterns("lr_factors", factors, model)
    _check_patterns("no_decay", no_decay, model)
    depths = {} if layer_decay == 1 else depths_from_head(model)
    groups: dict[tuple[bool, bool, float], dict[str, Any]] = {}
    for name, parameter in learned.items():
        decays = (decay == "all" or parameter.ndim > 1) and not _first(no_decay, name)
        hidden = parameter.ndim > 1 and ".blocks." in name and name.endswith(".weight")
        pattern = _first(factors, name)
        share = (1.0 if pattern is None else factors[pattern]) * layer_decay ** depths.get(name, 0)
        group = {
            "params": [],
            "weight_decay": weight_decay if decays else 0.0,
            "lr": lr * share,
            "hidden": hidden,
        }
        groups.setdefault((hidden, decays, share), group)["params"].append(parameter)
    return list(groups.values())


def describe_groups(groups: Sequence[Mapping[str, Any]], model: Segmentor) -> list[str]:
    """Say in a line for each rate and decay which parameters have them."""
    named = {parameter: name for name, parameter in model.named_parameters()}
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for group in groups:
        found.setdefault((group["lr"], group["weight_decay"]), []).extend(group["params"])
    return [
        f"lr {lr:.3g}, decay {decay:g}: {sum(p.numel() for p in parameters):,} weights, from "
        f"{named[parameters[0]]} to {named[parameters[-1]]}"
        for (lr, decay), parameters in sorted(found.items(), key=lambda item: item[0], reverse=True)
    ]


def depths_from_head(model: Segmentor) -> dict[str, int]:
    """Number the layers from the head, 0, back to the points; give each parameter's.

    The backbone says what a layer is (`Backbone.layers_in_order`): of a U-Net a stage of the
    decoder, what lies between the two sides, or a stage of the encoder with the step down to it; of
    a plain transformer a block. Layers without parameters do not count.
    """
    named = {parameter: name for name, parameter in model.named_parameters()}
    depth: dict[str, int] = {}
    for layer in [model.head, *reversed(model.backbone.layers_in_order())]:
        number = len(set(depth.values()))
        depth |= {named[p]: number for p in layer.parameters() if named[p] not in depth}
    # What a backbone leaves out of its layers learns as slowly as the first.
    return {name: depth.get(name, max(depth.values())) for name in named.values()}


def _first(patterns: Sequence[str] | Mapping[str, float], name: str) -> str | None:
    return next((pattern for pattern in patterns if re.search(pattern, name)), None)


def _check_patterns(
    setting: str, patterns: Sequence[str] | Mapping[str, float], model: nn.Module
) -> None:
    for pattern in patterns:
        try:
            found = any(re.search(pattern, name) for name, _ in model.named_parameters())
        except re.error as error:
            raise ValueError(
                f"optim.{setting}: {pattern!r} is no regular expression: {error}"
            ) from error
        if not found:
            some = ", ".join(name for name, _ in list(model.named_parameters())[:2])
            raise ValueError(
                f"optim.{setting}: no parameter has {pattern!r} in its name; names are such as "
                f"{some}"
            )
