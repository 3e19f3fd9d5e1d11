"""How close points lie, whatever points."""

import numpy as np

from pctx.data import spacing
from pctx.data.spacing import median_spacing


def test_repeated_points_count_once_however_many_there_are(monkeypatch):
    lattice = np.stack(np.meshgrid(*[np.arange(12.0)] * 3), -1).reshape(-1, 3) * 0.25 - 1
    coord = np.repeat(lattice, 3, axis=0).astype(np.float32)
    coord[coord == 0] = np.float32(-0.0)
    coord[:50][coord[:50] == 0] = 0
    for most in (10**6, 100):
        monkeypatch.setattr(spacing, "_MOST_SORTED", most)
        assert median_spacing(coord) == 0.25


def test_millions_of_equal_points_have_no_spacing_and_take_no_time(monkeypatch):
    # A tree of them is a single leaf, which each look-up would go through.
    monkeypatch.setattr(spacing, "_MOST_SORTED", 100)
    assert median_spacing(np.ones((300_000, 3), np.float32)) is None
