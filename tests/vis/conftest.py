"""A label set and a cloud with labels, small enough to count by hand."""

import numpy as np
import pytest

from pctx.data.labels import LabelSet
from pctx.geometry.points import PointCloud


@pytest.fixture(scope="session")
def labels() -> LabelSet:
    return LabelSet(
        names=("road", "car", "tree", "sign"),
        colors=((255, 0, 255), (100, 150, 245), (0, 175, 0), (255, 240, 150)),
        raw=((40, 60), (10,), (70,), (81,)),
        ignore=(0,),
    )


@pytest.fixture
def street() -> PointCloud:
    rng = np.random.default_rng(0)
    coord = rng.uniform((-20, -20, 0), (20, 20, 4), (400, 3)).astype(np.float32)
    label = np.repeat([40, 10, 70, 0], 100)
    return PointCloud(coord=coord, label=label, intensity=rng.random(400).astype(np.float32))
