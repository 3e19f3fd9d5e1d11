"""A file of golden numbers, the model it is of, and how near the two are."""

import csv
import json

import numpy as np
import torch
import torch.nn.functional as F

from pctx.geometry.points import PointBatch
from pctx.models.segmentor import Segmentor
from tests.conftest import SHARED

NO_GRADIENT = 1e-4
"""Of a bias before a batch norm there is none but rounding."""

BESIDE = ("_stages", "_trainbn")


def golden_files(pattern, beside=""):
    """Every golden model file of a pattern, whatever there is; those alone that have one beside."""
    stems = sorted(path.stem for path in (SHARED / "golden").glob(f"{pattern}.npz"))
    return [
        stem
        for stem in stems
        if not stem.endswith(BESIDE) and (not beside or stem + beside in stems)
    ]


class PublishedCase:
    """The published numbers of a segmentor, or of an encoder alone, and ours.

    `make` builds the backbone of a published configuration, `name` gives a weight of ours its
    published name, and `layout` brings a published array, by our name, to our axes.
    """

    def __init__(self, path, dtype, make, name, layout=lambda own, array: array):
        self.path, self.dtype, self.name, self.layout = path, dtype, name, layout
        self.data, self.meta = np.load(path), meta_of(path)
        self.prefix = "f64/" if dtype == torch.float64 else ""
        self.backbone = make(self.meta)
        num_classes = self.meta.get("num_classes") or self.meta["config"].get("num_classes")
        self.model = Segmentor(self.backbone, num_classes) if num_classes else Headless(self)
        weights, own = self._weights(), self.model.state_dict()
        assert {name(key) for key in own} == set(weights)
        self.model.load_state_dict({key: layout(key, weights[name(key)]) for key in own})
        self.model.to(dtype).eval()
        self.batch = self._read_batch()

    def _weights(self):
        """Those of the file, or of its twin by the other rule of windows, which has them."""
        data = self.data
        if not any(key.startswith("param/") for key in data.files):
            data = np.load(self.path.with_name(self.path.name.replace("plain", "varlen")))
        start = "param/"
        return {
            key[len(start) :]: torch.from_numpy(data[key])
            for key in data.files
            if key.startswith(start)
        }

    def _read_batch(self):
        data = self.data
        if "input/coord" not in data:
            data = np.load(self.path.with_name(self.path.name.replace("plain", "varlen")))
        tensors = {
            key[len("input/") :]: torch.from_numpy(data[key])
            for key in data.files
            if key.startswith("input/")
        }
        coord = tensors["coord"].to(self.dtype)
        grid_coord = tensors.get("grid_coord")
        if grid_coord is None:
            grid_coord = torch.div(coord, self.meta["grid_size"], rounding_mode="floor").long()
        return PointBatch(
            coord=coord,
            grid_coord=grid_coord,
            feat=tensors["feat"].to(self.dtype).requires_grad_(),
            offsets=F.pad(tensors["offset"], (1, 0)),
            label=tensors.get("segment"),
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

    def assert_published(self, logits_within, gradients_within):
        """Logits, loss and gradients are those of the file; and so they are with frozen norms."""
        for prepare in (self.model.eval, lambda: freeze_norms(self.model)):
            prepare()
            self.model.zero_grad()
            self.batch.feat.grad = None
            if isinstance(self.model, Headless):
                assert self.distance(self.model(self.batch), "out/feat") <= logits_within
                continue
            logits = self.model(self.batch)
            assert self.distance(logits, "out/logits") <= logits_within
            if "out/loss" not in self.data:
                continue
            loss = self.loss(logits)
            assert self.distance(loss, "out/loss") <= logits_within
            loss.backward()
            distance, count = self.gradient_distance()
            assert distance <= gradients_within
            assert count >= 5 or "input/coord" not in self.data

    def assert_a_training_step(self, loss_within, gradients_within, after_within):
        """With batch statistics they are the published ones too, and what they leave."""
        data = np.load(self.path.with_name(f"{self.path.stem}_trainbn.npz"))
        self.model.train()
        loss = self.loss(self.model(self.batch))
        loss.backward()
        assert abs(loss.item() - float(data[f"{self.prefix}trainbn/loss"])) <= loss_within
        distance, count = self.gradient_distance(data, "trainbn/grad/")
        assert distance <= gradients_within and count >= 5
        start = "trainbn/after/"  # in float32 only
        after = {key[len(start) :]: data[key] for key in data.files if key.startswith(start)}
        state = {self.name(key): value for key, value in self.model.state_dict().items()}
        assert after
        for key, reference in after.items():
            assert np.abs(state[key].numpy() - reference).max() <= after_within, key

    def stages(self):
        """The structure of each level, as the published model found it."""
        return np.load(self.path.with_name(f"{self.path.stem}_stages.npz"))


class Headless(torch.nn.Module):
    """A backbone by itself, whose weights are named as in a segmentor."""

    def __init__(self, case):
        super().__init__()
        self.backbone = case.backbone

    def forward(self, points):
        return self.backbone(points.feat, self.backbone.plan(points))


def meta_of(path):
    """The settings of a file."""
    with np.load(path) as data:
        return json.loads(str(data["meta/json"]))


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


def assert_published_size(golden, row, model, name, layout=lambda own, array: array):
    """A segmentor has the counts, the names and the shapes of a published configuration."""
    line = published_counts(golden, row)
    made = model(int(line["in_channels"]), int(line["num_classes"]))
    counts = {name(key): p.numel() for key, p in made.named_parameters()}
    inside = [count for key, count in counts.items() if key.startswith("backbone.")]
    assert sum(counts.values()) == int(line["parameters"])
    assert sum(inside) == int(line["backbone_parameters"])
    state, published = made.state_dict(), published_shapes(golden, row)
    assert sum(b.numel() for b in made.buffers()) == int(line["buffers_elements"])
    assert len(state) == int(line["state_dict_entries"])
    shapes = {key: tuple(layout(key, value).shape) for key, value in state.items()}
    assert {name(key): shape for key, shape in shapes.items()} == published
