"""Attentive: what an attention layer offers so that one can look into it.

n points, q of them that ask, w windows, k slots or neighbours, h heads, c channels.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Attentive(Protocol):
    """An attention layer over points whose weights can be read and exchanged.

    `inputs` are those of `forward`: the features, (n, c), come first, and one input is a `Windows`
    or a `Neighborhood`. Any other tensor has a row a point or, from three dimensions on, an entry
    a window, or an entry a point that asks where there is a `Neighborhood`.

    The structure may have slots or rows for the first q of the n points only: these ask, the
    others are heard. So a layer can be asked about a few points, at the cost of a few.
    """

    def weights(self, *inputs: Any) -> Tensor:
        """Return the attention that `forward` pays in evaluation: what a row hears sums to 1.

        (w, h, k, k), row = query, column = key, from attention by window; (q, h, k) from any
        other. Vector attention has as many heads as it has weights a neighbour.
        """

    def attend(self, weights: Tensor, *inputs: Any) -> Float[Tensor, "q c"]:
        """Return what `forward` would if this were the attention paid, differentiable in it."""
