"""Parameter groups and learning-rate schedules."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from pctx.models.segmentor import Segmentor
from pctx.models.unet import UNet


def parameter_groups(
    model: Segmentor,
    *,
    weight_decay: float,
    lr: float,
    block_factor: float = 1.0,
    layer_decay: float = 1.0,
) -> list[dict[str, Any]]:
    """Split the parameters: norms and biases do not decay; parts learn at shares of the rate.

    Args:
        model: its frozen parameters are left out.
        weight_decay: of the weights that are no norms or biases.
        lr: the rate of the head.
        block_factor: the share of the blocks; PTv3 is published with a tenth.
        layer_decay: the share of each layer of a U-Net in the rate of the one nearer to the head
            (see `depths_from_head`), for fine-tuning. (Clark et al., ELECTRA, 2020.)

    Raises:
        ValueError: a rate or share is not above 0, nothing is left to learn, or `layer_decay` is
            not 1 and the backbone has no U-Net.
    """
    for name, value in (("lr", lr), ("block_factor", block_factor), ("layer_decay", layer_decay)):
        if not value > 0:
            raise ValueError(f"optim.{name} must be above 0, found {value}")
    depths = {} if layer_decay == 1 else depths_from_head(model)
    groups: dict[tuple[bool, float], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decays = parameter.ndim > 1
        share = (block_factor if ".blocks." in name else 1.0) * layer_decay ** depths.get(name, 0)
        group = {
            "params": [],
            "weight_decay": weight_decay if decays else 0.0,
            "lr": lr * share,
        }
        groups.setdefault((decays, share), group)["params"].append(parameter)
    if not groups:
        raise ValueError("every parameter is frozen, so nothing is left to learn")
    return list(groups.values())


def depths_from_head(model: Segmentor) -> dict[str, int]:
    """Number the layers of a U-Net from the head, 0, back to the points; give each parameter's.

    A layer is a stage of the decoder, fine to coarse, then what lies between the two sides, then a
    stage of the encoder with the step down to it, coarse to fine. What comes before all stages is
    the last layer.

    Raises:
        ValueError: the backbone has no U-Net.
    """
    unet = next((part for part in model.backbone.modules() if isinstance(part, UNet)), None)
    if unet is None:
        raise ValueError(
            f"optim.layer_decay needs a backbone with a U-Net, and {type(model.backbone).__name__} "
            "has none; leave it at 1"
        )
    bottom = [] if unet.bottom is None else [unet.bottom]
    deep = zip(reversed(unet.encoder[1:]), reversed(unet.down), strict=True)
    layers = [model.head, *unet.decoder, *bottom, *map(nn.ModuleList, deep), unet.encoder[0]]
    depth = {p: number for number, layer in enumerate(layers) for p in layer.parameters()}
    return {name: depth.get(p, len(layers)) for name, p in model.named_parameters()}


def one_cycle(
    optimizer: Optimizer,
    *,
    total_steps: int,
    warm_up: float = 0.05,
    div_factor: float = 10.0,
    final_div_factor: float = 1000.0,
) -> OneCycleLR:
    """Rise to each group's rate over the share `warm_up` of the steps, then fall by a cosine."""
    return OneCycleLR(
        optimizer,
        max_lr=[group["lr"] for group in optimizer.param_groups],
        total_steps=max(total_steps, 2),
        pct_start=warm_up,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
        cycle_momentum=False,
    )
