"""Columns without names: what the numbers of a table are, told from the numbers. n points."""

from __future__ import annotations

import numpy as np

from pctx.data.io.columns import whole_numbers

NARROWEST, WIDEST = 3, 16
"""Columns of a table that passes for points."""


def name_columns(table: np.ndarray) -> dict[str, np.ndarray]:
    """Name the columns (n,) of a table (n, 3 to 16) behind its first three, which are x, y and z.

    Three columns are normals where they are of unit length, or within -1..1 with
    some below 0; else colours where they are 0..1 or whole numbers 0..255. A single column is
    intensity where it stands before any colours; the last one, of whole numbers, is the label where
    it stands behind colours or normals. What is 0, 1 or 255 throughout behind colours is their
    opacity and is passed over, as is a column of nothing but NaN. The rest is column_4 and so on.
    """
    columns: dict[str, np.ndarray] = {}
    at, width = 3, table.shape[1]
    while at < width:
        triple, column = table[:, at : at + 3], table[:, at]
        rest = width - at
        if rest >= 3 and "nx" not in columns and _are_normals(triple):
            names = ["nx", "ny", "nz"]
        elif rest >= 3 and "red" not in columns and _are_colors(triple):
            names = ["red", "green", "blue"]
        elif "red" in columns and _is_opacity(column) and "opacity" not in columns:
            names = ["opacity"]
        elif rest == 1 and {"red", "nx"} & set(columns) and whole_numbers(column) is not None:
            names = ["label"]
        elif "intensity" not in columns and "red" not in columns:
            names = ["intensity"]
        else:
            names = [f"column_{at + 1}"]
        columns |= dict(zip(names, table.T[at : at + len(names)], strict=True))
        at += len(names)
    columns.pop("opacity", None)
    return {name: column for name, column in columns.items() if not _is_missing(column)}


def _are_normals(triple: np.ndarray) -> bool:
    found = triple[np.isfinite(triple).all(axis=1)].astype(np.float64)
    length = np.linalg.norm(found, axis=1)
    # Rounded normals are a little off; a normal may also be missing, and then is 0.
    unit = (np.abs(length - 1) < 0.05) | (length == 0)
    small = np.abs(found).max(initial=0) <= 1.05
    return bool((unit.all() and length.any()) or (small and found.min(initial=0) < 0))


def _are_colors(triple: np.ndarray) -> bool:
    found = triple[np.isfinite(triple)]
    return bool(
        len(found) and found.min() >= 0 and found.max() <= 255
        and (found.max() <= 1 or (found == np.rint(found)).all())
    )  # fmt: skip


def _is_opacity(column: np.ndarray) -> bool:
    return len(column) > 1 and bool((column == column[0]).all() and column[0] in (0, 1, 255))


def _is_missing(column: np.ndarray) -> bool:
    return len(column) > 0 and bool(np.isnan(column).all())
