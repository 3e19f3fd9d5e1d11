"""UNet: the walk down and up a hierarchy of most backbones, and its stages.

n points of a level, m points of the next, c channels, i and s input channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Hierarchy, Level


class UNet(nn.Module):
    """Stages at each level, a step down between two, and on the way back a stage that joins.

    Attributes:
        encoder: one a level, fine to coarse: stage(feat, level) -> feat.
        down: one between two levels: step(feat, fine level) -> coarse feat.
        decoder: one a level but the coarsest, fine to coarse:
            stage(coarse feat, skip, level) -> feat. None at all leaves the coarsest features.
        bottom: at the coarsest level, before the way back: stage(feat, level) -> feat.
    """

    def __init__(
        self,
        encoder: Sequence[nn.Module],
        down: Sequence[nn.Module],
        decoder: Sequence[nn.Module] = (),
        bottom: nn.Module | None = None,
    ):
        super().__init__()
        if len(down) != len(encoder) - 1 or len(decoder) not in (0, len(down)):
            raise ValueError(
                f"{len(encoder)} encoder stages need {len(encoder) - 1} steps down and as many "
                f"decoder stages or none, found {len(down)} and {len(decoder)}"
            )
        self.encoder = nn.ModuleList(encoder)
        self.down = nn.ModuleList(down)
        self.decoder = nn.ModuleList(decoder)
        self.bottom = bottom

    def layers_in_order(self) -> list[nn.Module]:
        """List the parts from the points on: the stages down, each with its step, and up."""
        first, *deeper = self.encoder
        down = map(nn.ModuleList, zip(self.down, deeper, strict=True))
        bottom = [] if self.bottom is None else [self.bottom]
        return [first, *down, *bottom, *reversed(self.decoder)]

    def forward(
        self,
        feat: Float[Tensor, "n c"],
        hierarchy: Hierarchy,
        signals: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Return features of the finest level, or of the coarsest without a decoder.

        Args:
            feat: one row a point of the finest level.
            hierarchy: the plan.
            signals: one a level, a row a point, handed to its stages after the level; None hands
                them none.
        """
        places: list[tuple[Level | Tensor, ...]] = [(level,) for level in hierarchy.levels]
        if signals is not None:
            places = [(*place, signal) for place, signal in zip(places, signals, strict=True)]
        skips: list[Tensor] = []
        feat = self.encoder[0](feat, *places[0])
        for fine, place, step, stage in zip(
            hierarchy.levels[:-1], places[1:], self.down, self.encoder[1:], strict=True
        ):
            skips.append(feat)
            feat = stage(step(feat, fine), *place)
        if self.bottom is not None:
            feat = self.bottom(feat, *places[-1])
        if self.decoder:
            for stage, place in zip(reversed(self.decoder), reversed(places[:-1]), strict=True):
                feat = stage(feat, skips.pop(), *place)
        return feat


class Stage(nn.Module):
    """Blocks at one level, each called as block(feat, level), or with a signal after it."""

    def __init__(self, blocks: Iterable[nn.Module]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self, feat: Float[Tensor, "n c"], level: Level, *signal: Tensor
    ) -> Float[Tensor, "n c"]:
        """Run the blocks."""
        for block in self.blocks:
            feat = block(feat, level, *signal)
        return feat


class DecoderStage(nn.Module):
    """What joins a coarser level's features to the encoder's, then a stage.

    Args:
        join: called as join(coarse feat, skip, level).
        stage: of the level.
    """

    def __init__(self, join: nn.Module, stage: Stage):
        super().__init__()
        self.join = join
        self.stage = stage

    def forward(
        self,
        feat: Float[Tensor, "m i"],
        skip: Float[Tensor, "n s"],
        level: Level,
        *signal: Tensor,
    ) -> Float[Tensor, "n c"]:
        """Bring coarse rows to the points of a level, and run the blocks."""
        return self.stage(self.join(feat, skip, level), level, *signal)


def rising(drop_path: float, depths: Sequence[int]) -> list[list[float]]:
    """Spread stochastic depth from 0 to drop_path over the blocks of all stages."""
    total = sum(depths)
    rates = [drop_path * i / max(total - 1, 1) for i in range(total)]
    starts = [sum(depths[:i]) for i in range(len(depths))]
    return [rates[start : start + depth] for start, depth in zip(starts, depths, strict=True)]
