"""A file of golden numbers, the model it is of, and how near the two are."""

import csv
import json

import numpy as np
import torch
import torch.nn.functional as F

from pctx.geometry.points import PointBatch
from pctx.models.published import from_published
from pctx.models.segmentor import Segmentor

NO_GRADIENT = 1e-4
"""Of a bias before a batch norm there is none but rounding."""


class PublishedCase:
    """The published numbers of a segmentor, and ours.

    `make` builds the backbone of a published configuration, `name` gives a weight of ours its
    published name, and `layout` brings a published array, by our name, to our axes.
    """

    def __init__(self, path, dtype, make, name, layout=lambda own, array: array):
        self.data, self.name, self.layout = np.load(path), name, layout
        self.prefix = "f64/" if dtype == torch.float64 else ""
        meta = json.loads(str(self.data["meta/json"]))
        self.backbone = make(meta["config"])
        num_classes = meta.get("num_classes") or meta["config"]["num_classes"]
        self.model = Segmentor(self.backbone, num_classes)
        published = {
            key[len("param/") :]: torch.from_numpy(self.data[key])
            for key in self.data.files
            if key.startswith("param/")
        }
        weights = from_published(published, self.model.state_dict(), name)
        self.model.load_state_dict({key: layout(key, value) for key, value in weights.items()})
        self.model.to(dtype).eval()
        self.batch = self._read_batch(dtype)

    def _read_batch(self, dtype):
        def tensor(name):
            return torch.from_numpy(self.data[f"input/{name}"])

        coord = tensor("coord")
        given = "input/grid_coord" in self.data
        return PointBatch(
            coord=coord,
            grid_coord=tensor("grid_coord") if given else torch.zeros_like(coord, dtype=torch.long),
            feat=tensor("feat").to(dtype).requires_grad_(),
            offsets=F.pad(tensor("offset"), (1, 0)),
            label=tensor("segment"),
        )

    def loss(self, logits):
        return F.cross_entropy(logits, self.batch.label, ignore_index=-1)

    def distance(self, ours, key):
        """How far we are at most."""
        return np.abs(ours.detach().numpy() - self.data[self.prefix + key]).max()

    def gradient_distance(self, data=None, start="grad/"):
        """The same of the gradients, each over its largest entry; and how many there are."""
        data, start = data or self.data, self.prefix + start
        own = {self.name(key): (key, p) for key, p in self.model.named_parameters()}
        worst, count = 0.0, 0
        for key in data.files:
            if not key.startswith(start):
                continue
            reference = torch.from_numpy(data[key])
            if key.endswith("input/feat"):
                ours = self.batch.feat.grad
            else:
                ours_key, parameter = own[key[len(start) + len("param/") :]]
                ours, reference = parameter.grad, self.layout(ours_key, reference)
            largest = max(reference.abs().max(), NO_GRADIENT)
            worst = max(worst, float((ours - reference).abs().max() / largest))
            count += 1
        return worst, count


def freeze_norms(model):
    """Train with batch norms that keep to their running statistics."""
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.eval()


def published_counts(golden, row):
    """A line of the table of parameter counts."""
    with (golden / "param_counts.tsv").open() as file:
        return {line["name"]: line for line in csv.DictReader(file, delimiter="\t")}[row]


def published_shapes(golden, row):
    """The shape of every published weight."""
    with (golden / f"state_dict_{row}.tsv").open() as file:
        return {
            line["key"]: ()
            if line["shape"] == "scalar"
            else tuple(map(int, line["shape"].split(",")))
            for line in csv.DictReader(file, delimiter="\t")
        }


def assert_counts(model, line):
    """Parameters, buffers and entries are as many as published."""
    assert sum(p.numel() for p in model.parameters()) == int(line["parameters"])
    assert sum(b.numel() for b in model.buffers()) == int(line["buffers_elements"])
    assert len(model.state_dict()) == int(line["state_dict_entries"])
