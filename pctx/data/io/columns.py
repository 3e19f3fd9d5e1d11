"""Named columns, as PLY, LAS and array files hold them, to a PointCloud and back.

n points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from pctx.geometry.points import PointCloud

_PREFIXES = ("scalar_", "diffuse_", "vertex_")
"""What CloudCompare, MeshLab and others put before a column's name."""

_NAMES = {
    "x": ("x", "points:0", "easting"),
    "y": ("y", "points:1", "northing"),
    "z": ("z", "points:2", "elevation", "height"),
    "red": ("red", "r"),
    "green": ("green", "g"),
    "blue": ("blue", "b"),
    "nx": ("nx", "normal_x", "normalx"),
    "ny": ("ny", "normal_y", "normaly"),
    "nz": ("nz", "normal_z", "normalz"),
    "intensity": ("intensity", "reflectance", "remission", "reflectivity", "strength", "i"),
    "label": (
        *("label", "labels", "class", "classification", "semantic", "semantic_label"),
        *("sem_class", "sem_label", "segment", "category", "semantic_gt", "segment20"),
    ),
    "instance": (
        *("instance", "instances", "instance_id", "instance_label", "ins_class", "instance_gt"),
    ),
}
"""The names a column goes by, without case and prefix; the earlier one wins."""


def cloud_from_columns(
    columns: Mapping[str, np.ndarray], xyz: np.ndarray | None = None
) -> PointCloud:
    """Make a cloud of named columns; those with no usual name go to `extra` under their own.

    Colours may be 8-bit, 16-bit, 8-bit numbers in 16-bit fields, or 0..1. A label or instance
    column counts as one where all its values are whole numbers; a missing one (NaN) becomes -1.

    Args:
        columns: each (n, ...). Single columns are found by name.
        xyz: (n, 3) positions in metres, where they are no columns x, y, z.

    Raises:
        ValueError: there are no columns x, y and z and no `xyz`.
    """
    found = {role: name for role in _NAMES if (name := _find(role, columns)) is not None}
    if xyz is None:
        if missing := [role for role in "xyz" if role not in found]:
            raise ValueError(
                f"it has no column {missing[0]}; its columns are {', '.join(columns) or 'none'}"
            )
        xyz = np.stack([columns[found[role]].astype(np.float64) for role in "xyz"], axis=1)
        used = {found[role] for role in "xyz"}
    else:
        used = set()
    fields: dict[str, np.ndarray] = {}
    if (color := _triple("red", "green", "blue", found, columns)) is not None:
        fields["color"] = color_to_uint8(color)
        used |= {found[role] for role in ("red", "green", "blue")}
    if (normal := _triple("nx", "ny", "nz", found, columns)) is not None:
        fields["normal"] = normal.astype(np.float32)
        used |= {found[role] for role in ("nx", "ny", "nz")}
    if "intensity" in found:
        fields["intensity"] = columns[found["intensity"]].astype(np.float32)
        used.add(found["intensity"])
    for role in ("label", "instance"):
        if role in found and (whole := whole_numbers(columns[found[role]])) is not None:
            fields[role] = whole
            used.add(found[role])
    extra = {name: column for name, column in columns.items() if name not in used}
    return PointCloud.from_xyz(xyz, extra=extra, **fields)


def has_positions(names: Iterable[str]) -> bool:
    """Whether three of the names are usual ones of x, y and z."""
    plain = {_plain(name) for name in names}
    return all(plain & set(_NAMES[role]) for role in "xyz")


def columns_of(cloud: PointCloud) -> Iterator[tuple[str, np.ndarray]]:
    """Give every field but position and colour as single columns with distinct names.

    The names are nx, ny, nz, intensity, label, instance and those of `extra`, where a column (n, k)
    becomes k columns NAME_0 ... and a name that is taken gets a number.
    """
    taken = {"x", "y", "z", "red", "green", "blue"}
    fields: list[tuple[str, np.ndarray]] = []
    if cloud.normal is not None:
        fields += zip(("nx", "ny", "nz"), cloud.normal.T, strict=True)
    for name in ("intensity", "label", "instance"):
        if (column := getattr(cloud, name)) is not None:
            fields.append((name, column))
    for name, column in cloud.extra.items():
        if column.ndim == 1:
            fields.append((name, column))
        else:
            flat = column.reshape(len(column), int(np.prod(column.shape[1:])))
            fields += [(f"{name}_{i}", flat[:, i]) for i in range(flat.shape[1])]
    for name, column in fields:
        name = distinct(name, taken)
        taken.add(name)
        yield name, column


def keep_integers(column: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Give a column that text states as of an integer type as such where the text keeps to that."""
    if kind.kind == "f":
        return column
    limits = np.iinfo(kind)
    fits = (column >= limits.min) & (column <= limits.max) & (column == np.rint(column))
    return column.astype(kind) if fits.all() else column


def narrow(column: np.ndarray) -> np.ndarray:
    """Give a column as float32 or float64, or as an integer of at most 4 bytes where it fits one.

    Truth values become 0 and 1.
    """
    if column.dtype.kind == "f":
        return column.astype(np.float64 if column.dtype.itemsize >= 8 else np.float32)
    if column.dtype.kind == "b" or column.dtype.itemsize < 8:
        return column.astype(np.uint8) if column.dtype.kind == "b" else column
    for kind in (np.int32, np.uint32):
        limits = np.iinfo(kind)
        if not len(column) or (column.min() >= limits.min and column.max() <= limits.max):
            return column.astype(kind)
    return column


def distinct(name: str, taken: set[str]) -> str:
    """Give the name, or the name with the first number from 2 on that is not taken."""
    if name not in taken:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def color_to_uint8(color: np.ndarray) -> np.ndarray:
    """Turn colours of any usual range into 0..255.

    Integers above 255 are 16-bit and lose their low byte, so that v * 256 and v * 257 both give v.
    Real numbers are 0..1 where none is larger; NaN gives 0.
    """
    if color.dtype == np.uint8:
        return color
    if color.dtype.kind == "f":
        color = np.nan_to_num(color, nan=0, posinf=0, neginf=0)
        if not color.size or color.max() <= 1:
            color = color * 255
        color = np.rint(color)
    if color.size and color.max() > 255:
        color = color // 256
    return np.clip(color, 0, 255).astype(np.uint8)


def whole_numbers(column: np.ndarray) -> np.ndarray | None:
    """Give a column (n,) as int64 with -1 for NaN, or None where it holds anything else."""
    if column.ndim != 1 or column.dtype.kind not in "iubf":
        return None
    if column.dtype.kind == "f":
        column = np.where(np.isnan(column), -1, column)
        if not (np.isfinite(column).all() and (column == np.rint(column)).all()):
            return None
        if column.size and np.abs(column).max() >= 2**63:
            return None
    return column.astype(np.int64)


def _find(role: str, columns: Mapping[str, np.ndarray]) -> str | None:
    plain: dict[str, str] = {}
    for name, column in columns.items():
        if column.ndim == 1 and column.dtype.kind in "iubf":
            plain.setdefault(_plain(name), name)
    return next((plain[name] for name in _NAMES[role] if name in plain), None)


def _plain(name: str) -> str:
    name = name.lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _triple(
    a: str, b: str, c: str, found: Mapping[str, str], columns: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    if not all(role in found for role in (a, b, c)):
        return None
    return np.stack([columns[found[role]] for role in (a, b, c)], axis=1)
