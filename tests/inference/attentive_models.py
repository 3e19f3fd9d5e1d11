"""Small models to look into, and their attention as dense matrices."""

import torch
from torch import nn

from pctx.geometry.hierarchy import Hierarchy, Level
from pctx.geometry.windows import Windows, serial_windows
from pctx.models.backbone import Backbone
from pctx.models.point_transformer_v3 import PointTransformerV3
from pctx.models.segmentor import Segmentor
from pctx.nn.attention import WindowAttention

WINDOW = 5


class Flat(Backbone):
    """Layers over windows of consecutive rows, one after the other, each with a residual."""

    def __init__(self, layers, channels=8):
        super().__init__()
        self.in_channels = self.out_channels = channels
        self.layers = nn.ModuleList(layers)

    def plan(self, points, generator=None):
        order = torch.arange(len(points))
        windows = serial_windows(order, points.offsets, WINDOW)
        level = Level(
            coord=points.coord,
            grid_coord=points.grid_coord,
            offsets=points.offsets,
            windows=(windows,),
        )
        return Hierarchy(levels=(level,))

    def forward(self, feat, hierarchy):
        for layer in self.layers:
            feat = feat + layer(feat, hierarchy.levels[0].windows[0])
        return feat


class Silent(Backbone):
    """A network without attention."""

    def __init__(self):
        super().__init__()
        self.in_channels = self.out_channels = 8
        self.linear = nn.Linear(8, 8)

    def plan(self, points, generator=None):
        level = Level(coord=points.coord, grid_coord=points.grid_coord, offsets=points.offsets)
        return Hierarchy(levels=(level,))

    def forward(self, feat, hierarchy):
        return self.linear(feat)


class Selfish(nn.Module):
    """Attention in which every point hears itself alone."""

    def forward(self, feat: torch.Tensor, windows: Windows) -> torch.Tensor:
        return self.attend(self.weights(feat, windows), feat, windows)

    def weights(self, feat, windows):
        return torch.eye(windows.window_size).expand(windows.num_windows, 1, -1, -1)

    def attend(self, weights, feat, windows):
        heard = weights[:, 0] @ feat[windows.index]
        return heard.flatten(0, 1)[windows.slot]


class Deaf(Selfish):
    """Attention in which nobody hears anybody."""

    def weights(self, feat, windows):
        return torch.zeros(windows.num_windows, 1, windows.window_size, windows.window_size)


def flat(num_layers=1, heads=2, seed=0):
    torch.manual_seed(seed)
    layers = [WindowAttention(8, heads) for _ in range(num_layers)]
    return louder(Segmentor(Flat(layers), 3)).eval()


def toy_unet(seed=0, **arguments):
    """Two levels: two layers, then one, and one on the way back."""
    torch.manual_seed(seed)
    backbone = PointTransformerV3(
        **{
            "in_channels": 4,
            "channels": (8, 16),
            "depths": (2, 1),
            "num_heads": (2, 4),
            "strides": (2,),
            "decoder_channels": (8,),
            "decoder_depths": (1,),
            "decoder_num_heads": (2,),
            "window_size": 16,
            **arguments,
        }
    )
    return louder(Segmentor(backbone, 3)).eval()


def louder(model):
    """Make queries and keys larger, so that attention differs from an even share."""
    for module in model.modules():
        if isinstance(module, WindowAttention):
            module.qkv.weight.data *= 4
    return model


def dense_attention(module, feat, windows, bias=None, norm=None):
    """(h, n, n): the equation, for each point by itself, from the weights of the module."""
    feat = feat if norm is None else norm(feat)
    n, c = feat.shape
    h, k = module.num_heads, windows.window_size
    query, key, _ = (part.view(n, h, c // h) for part in module.qkv(feat).chunk(3, dim=1))
    dense = feat.new_zeros(h, n, n)
    for i in range(n):
        w, place = divmod(int(windows.slot[i]), k)
        real = torch.ones(k, dtype=torch.bool) if windows.valid is None else windows.valid[w]
        others = windows.index[w][real]
        for head in range(h):
            score = key[others, head] @ query[i, head] / (c // h) ** 0.5
            if bias is not None:
                score = score + bias[w, head, place][real]
            dense[head, i, others] = score.softmax(0)
    return dense


def heard_inputs(model, points):
    """What each window attention was given: [(module, inputs)], by hooks of our own."""
    seen = []
    hooks = [
        module.register_forward_pre_hook(lambda module, inputs: seen.append((module, inputs)))
        for module in model.modules()
        if isinstance(module, WindowAttention)
    ]
    with torch.no_grad():
        model(points)
    for hook in hooks:
        hook.remove()
    return seen


def pooling_matrices(levels):
    """(n, m) up, a coarse row copied to its points; (m, n) down, their mean."""
    cluster = levels[0].pooling.cluster
    up = torch.nn.functional.one_hot(cluster).float()
    return up, (up / up.sum(0)).T
