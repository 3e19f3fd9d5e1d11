"""PTv3 once more, as plainly as it can be said: loops over taps, clouds, patches and cells.

It reads published weights and settings, and shares nothing with the package but the curves.
"""

import itertools

import torch
import torch.nn.functional as F

from pctx.geometry.curves import encode_curves


class NaivePTv3:
    """The network in evaluation mode; `config` has the published argument names."""

    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    def __call__(self, feat, cells, ends, depth):
        """Scores of all points; clouds end at `ends`, and their curves have `depth` levels."""
        config, limits = self.config, [0, *ends]
        batch = torch.cat(
            [torch.full((b - a,), i) for i, (a, b) in enumerate(itertools.pairwise(limits))]
        )
        codes = encode_curves(cells, depth, config["order"])
        level = (cells, batch, codes)
        feat = self.conv("backbone.embedding.stem.conv", feat, level)
        feat = F.gelu(self.norm("backbone.embedding.stem.norm", feat))
        skips = []
        for stage, blocks in enumerate(config["enc_depths"]):
            home = f"backbone.enc.enc{stage}"
            if stage:
                fine, fine_level = feat, level
                feat, level, cluster = self.pool(f"{home}.down", fine, level, stage)
                skips.append((fine, fine_level, cluster))
            for block in range(blocks):
                feat = self.block(f"{home}.block{block}", feat, feat, level, stage, "enc", block)
        for stage in reversed(range(len(config["dec_depths"]))):
            home, (skip, level, cluster) = f"backbone.dec.dec{stage}", skips.pop()
            up = self.branch(f"{home}.up.proj", feat)[cluster]
            skip = self.branch(f"{home}.up.proj_skip", skip)
            feat = skip + up
            for block in range(config["dec_depths"][stage]):
                source = feat if block else skip  # the quirk of the released code
                feat = self.block(f"{home}.block{block}", feat, source, level, stage, "dec", block)
        return self.linear("seg_head", feat)

    def pool(self, home, feat, level, stage):
        cells, batch, codes = level
        shift = self.config["stride"][stage - 1].bit_length() - 1
        key = batch << 48 | codes[0] >> 3 * shift
        keys, cluster = key.unique(return_inverse=True)
        feat = self.linear(f"{home}.proj", feat)
        rows = [cluster == i for i in range(len(keys))]
        pooled = torch.stack([feat[row].amax(0) for row in rows])
        first = torch.tensor([int(row.nonzero()[0]) for row in rows])
        coarse = cells[first] >> shift, batch[first], codes[:, first] >> 3 * shift
        return F.gelu(self.norm(f"{home}.norm.0", pooled)), coarse, cluster

    def block(self, home, feat, source, level, stage, side, number):
        encoded = self.linear(f"{home}.cpe.1", self.conv(f"{home}.cpe.0", source, level))
        feat = feat + self.layer_norm(f"{home}.cpe.2", encoded)
        heads = self.config[f"{side}_num_head"][stage]
        size = self.config["enc_patch_size"][stage]
        if self.config["pre_norm"]:
            normed = self.layer_norm(f"{home}.norm1.0", feat)
            feat = feat + self.attend(home, normed, level, number, heads, size)
            return feat + self.mlp(home, self.layer_norm(f"{home}.norm2.0", feat))
        feat = feat + self.attend(home, feat, level, number, heads, size)
        feat = self.layer_norm(f"{home}.norm1.0", feat)
        return self.layer_norm(f"{home}.norm2.0", feat + self.mlp(home, feat))

    def attend(self, home, feat, level, number, heads, size):
        cells, batch, codes = level
        code, counts = codes[number % len(codes)], batch.bincount().tolist()
        k = size if self.config["enable_flash"] else min(size, *counts)
        query, key, value = (
            part.unflatten(1, (heads, -1)).transpose(0, 1)
            for part in self.linear(f"{home}.attn.qkv", feat).chunk(3, 1)
        )
        out = torch.empty_like(feat)
        for cloud, count in enumerate(counts):
            order = (batch == cloud).nonzero()[:, 0]
            order = order[code[order].argsort()]
            for start in range(0, count, k):
                own = order[start : start + k]
                # A short last patch borrows the same places of the patch before.
                patch = own
                if start > 0 and len(own) < k:
                    patch = torch.cat([own, order[start - k : start][len(own) :]])
                scores = query[:, own] @ key[:, patch].transpose(1, 2)
                scores = scores / (feat.shape[1] // heads) ** 0.5
                if self.config["enable_rpe"]:
                    offset = cells[own][:, None] - cells[patch]
                    scores = scores + self.bias(home, offset, size)
                out[own] = (scores.softmax(2) @ value[:, patch]).transpose(0, 1).flatten(1)
        return self.linear(f"{home}.attn.proj", out)

    def bias(self, home, offset, size):
        bound = int((4 * size) ** (1 / 3) * 2)
        table = self.weights[f"{home}.attn.rpe.rpe_table"].unflatten(0, (3, -1))
        rows = offset.clamp(-bound, bound) + bound
        return sum(table[axis][rows[..., axis]] for axis in range(3)).permute(2, 0, 1)

    def mlp(self, home, feat):
        return self.linear(f"{home}.mlp.0.fc2", F.gelu(self.linear(f"{home}.mlp.0.fc1", feat)))

    def branch(self, home, feat):
        return F.gelu(self.norm(f"{home}.1", self.linear(f"{home}.0", feat)))

    def conv(self, name, feat, level):
        cells, batch, _ = level
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        places = [tuple(place) for place in torch.cat([batch[:, None], cells], 1).tolist()]
        row, reach = {place: i for i, place in enumerate(places)}, range(weight.shape[1])
        out = feat.new_zeros(len(feat), len(weight))
        for tap in itertools.product(reach, repeat=3):
            at = (slice(None), *tap)
            i, j, k = (t - weight.shape[1] // 2 for t in tap)
            there = [row.get((b, x + i, y + j, z + k)) for b, x, y, z in places]
            here = [n for n, other in enumerate(there) if other is not None]
            out[here] += feat[[there[n] for n in here]] @ weight[at].T
        return out if bias is None else out + bias

    def linear(self, name, feat):
        return F.linear(feat, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def layer_norm(self, name, feat):
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(feat, feat.shape[1:], weight, bias)

    def norm(self, name, feat):
        mean, var, weight, bias = (
            self.weights[f"{name}.{leaf}"]
            for leaf in ("running_mean", "running_var", "weight", "bias")
        )
        return (feat - mean) / (var + 1e-3).sqrt() * weight + bias
