"""The formats of point-cloud files: one table of suffixes, `read`, `write` and `find_scans`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from pctx.data.io import arrays, e57, kitti, las, npy, pcd, pcd_header, ply, ptx, text
from pctx.data.io.arrays import is_scan_folder
from pctx.data.io.atomic import replacing
from pctx.data.io.companions import LABEL_FOLDERS, SCAN_FOLDERS
from pctx.data.io.errors import ReadError
from pctx.data.io.labelled import Labelled, label_cloud
from pctx.data.io.las_file import LAS_MAGIC
from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud

_MORE_TEXT = (".asc", ".pts", ".tsv", ".xyzi", ".xyzn", ".xyzrgb")
_FIRST = 4096
"""Bytes at the beginning of a file from which its format is told."""

Reader = Callable[[Path], PointCloud]
Writer = Callable[[Path, Labelled], None]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A row of the table.

    Attributes:
        read: None where the file is no scan, such as one of labels.
        write: None where the format holds no labels.
        told: tells from the first bytes of a file whether it is of this format, where they do.
        output: the suffix that a labelled scan of this format gets.
        largest: the largest raw id that a new file holds; None where any fits.
        wide: whether a column may have many numbers a point, as features have.
    """

    read: Reader | None = None
    write: Writer | None = None
    told: Callable[[bytes], bool] | None = None
    output: str = ""
    largest: int | None = None
    wide: bool = False


def _begins(magic: bytes) -> Callable[[bytes], bool]:
    return lambda first: first.startswith(magic)


_LAS = Format(read=las.read_las, write=las.write_las, told=_begins(LAS_MAGIC), largest=255)
_TEXT = Format(read=text.read_text, write=text.write_text, told=text.has_header)

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        ".las": replace(_LAS, output=".las"),
        ".laz": replace(_LAS, output=".laz"),
        ".ply": Format(
            read=ply.read_ply, write=ply.write_ply, told=_begins(ply.MAGIC), output=".ply"
        ),
        ".pcd": Format(
            read=pcd.read_pcd, write=pcd.write_pcd, told=pcd_header.is_pcd, output=".pcd"
        ),
        ".bin": Format(read=kitti.read_kitti, output=".label"),
        ".label": Format(write=kitti.write_label, largest=2**16 - 1),
        ".pcd.bin": Format(read=kitti.read_nuscenes, output=kitti.LIDARSEG),
        kitti.LIDARSEG: Format(write=kitti.write_lidarseg, largest=255),
        ".npy": Format(read=arrays.read_npy, told=_begins(npy.NPY_MAGIC), output=".npz"),
        ".npz": Format(
            read=arrays.read_npz,
            write=arrays.write_npz,
            told=_begins(arrays.NPZ_MAGIC),
            output=".npz",
            wide=True,
        ),
        ".xyz": replace(_TEXT, output=".xyz"),
        ".txt": replace(_TEXT, output=".txt"),
        ".csv": replace(_TEXT, output=".csv"),
        **{suffix: Format(read=text.read_text, output=".txt") for suffix in _MORE_TEXT},
        ".ptx": Format(read=ptx.read_ptx, output=".txt"),
        ".e57": Format(read=e57.read_e57, told=_begins(e57.MAGIC), output=".laz"),
    }
)
"""By the end of a file's name, in small letters; the longest one that fits counts."""

READABLE = tuple(suffix for suffix, row in FORMATS.items() if row.read)
WRITABLE = tuple(suffix for suffix, row in FORMATS.items() if row.write)


def read(path: Path | str) -> PointCloud:
    """Read a scan. Where the first bytes tell another format than the suffix, they are believed.

    Raises:
        FileNotFoundError: there is no such file.
        ReadError: it is a folder, empty, of no known format, cut short or corrupt.
    """
    path = Path(path)
    if path.is_dir() and not is_scan_folder(path):
        raise ReadError(f"{path} is a folder; give a file, one of {', '.join(READABLE)}")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        reader = arrays.read_folder if path.is_dir() else _reader(path)
        # A number beyond float32 becomes infinite: an ordinary non-finite point.
        with np.errstate(over="ignore", invalid="ignore"):
            return reader(path)
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise ReadError(f"{path}: it needs more memory than there is") from error


def _reader(path: Path) -> Reader:
    """Choose by the first bytes of a file, and where they tell nothing by its suffix."""
    with path.open("rb") as stream:
        first = stream.read(_FIRST)
    suffix = suffix_of(path)
    row = FORMATS.get(suffix or "")
    if first and not (row and row.told and row.told(first)):
        row = next((r for r in FORMATS.values() if r.told and r.told(first)), row)
    if row is None or row.read is None:
        what = f"a {suffix} file holds no points" if row else "its suffix is not known"
        raise ReadError(f"{path}: {what}; these are read: {', '.join(READABLE)}")
    if not first:
        raise ReadError(f"{path}: the file is empty")
    return row.read


def write(
    path: Path | str,
    cloud: PointCloud,
    *,
    prediction: Prediction | None = None,
    source: Path | str | None = None,
    probabilities: bool = False,
    entropy: bool = False,
    features: bool = False,
    also: Collection[str] = (),
    overwrite: bool = False,
) -> None:
    """Write a cloud with the labels of a prediction, or with its own; it appears when it is whole.

    Args:
        path: the suffix says which format.
        cloud: the points.
        prediction: of every point of the cloud, in its order.
        source: the file the cloud was read from. Of LAS and LAZ, a copy is written that differs
            from it in the class only (and the new columns).
        probabilities: write the probability of each class too.
        entropy: write the entropy too.
        features: write the features too, as `feat`.
        also: of `confidence`, `margin`, `variance`, the columns to write too.
        overwrite: replace a file of this name.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        ValueError: the suffix is not known, the file is its own source, or the format cannot hold
            a raw id or a column.
    """
    path, source = Path(path), None if source is None else Path(source)
    labels = None if prediction is None else prediction.labels
    check_output(path, labels, source=source, features=features, overwrite=overwrite)
    labelled = label_cloud(
        cloud,
        prediction,
        source=source,
        probabilities=probabilities,
        entropy=entropy,
        features=features,
        also=also,
    )
    writer = FORMATS[suffix_of(path) or ""].write
    assert writer is not None
    with replacing(path, overwrite=overwrite) as beside:
        writer(beside, labelled)


def check_output(
    path: Path,
    labels: LabelSet | None = None,
    *,
    source: Path | None = None,
    features: bool = False,
    overwrite: bool = False,
) -> None:
    """Find out before anything is computed whether `write` would refuse.

    Raises:
        FileExistsError, ValueError: as `write` does.
    """
    row = FORMATS.get(suffix_of(path) or "")
    if row is None or row.write is None:
        raise ValueError(
            f"{path}: labels cannot be written to this suffix; these hold some: "
            f"{', '.join(WRITABLE)}"
        )
    if features and not row.wide:
        wide = ", ".join(suffix for suffix, row in FORMATS.items() if row.write and row.wide)
        raise ValueError(f"{path}: features do not fit into this format; write {wide}")
    if path.is_dir():
        raise FileExistsError(f"{path} is a folder; give the name of a file")
    _check_folder(path)
    if path.exists():
        if source is not None and source.exists() and path.samefile(source):
            raise ValueError(f"{path} is the file that is read; write to another name")
        if not overwrite:
            raise FileExistsError(f"{path}: exists already; --overwrite replaces it")
    if labels is None or (source is not None and not source.exists()):
        return
    codes = [*(ids[0] for ids in labels.raw), labels.unlabeled]
    if row.write is las.write_las and source is not None and las.is_las(source):
        las.check_classes(source, codes)
    elif row.largest is not None and (wrong := [c for c in codes if not 0 <= c <= row.largest]):
        raise ValueError(
            f"{path}: the raw id {wrong[0]} of a class does not fit, its format holds 0 to "
            f"{row.largest}; write .ply or .npz, or give the class another raw id in the card"
        )


def _check_folder(path: Path) -> None:
    """Raise OSError where the folder of a file cannot be made or written to."""
    folder = next(place for place in path.absolute().parents if place.exists())
    if not folder.is_dir():
        raise NotADirectoryError(f"{path}: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{path}: the folder {folder} cannot be written to")


def suffix_of(path: Path) -> str | None:
    """Give the longest suffix of the table with which a file's name ends."""
    name = path.name.lower()
    return max((s for s in FORMATS if name.endswith(s)), key=len, default=None)


def output_suffix(path: Path) -> str:
    """Give the suffix of the file that holds the labels of a scan."""
    row = FORMATS.get(suffix_of(path) or "")
    return row.output if row and row.output else ".npz"


def find_scans(folder: Path) -> list[Path]:
    """Find the scans in a folder and those below it, sorted.

    A folder with `coord.npy` is one scan. Passed over are hidden files, those of no readable
    suffix, texts that hold something else, and those of a folder of labels beside the folder of
    their scans.
    """
    return sorted(path for path in _files(folder, set()) if _is_scan(path))


def _files(folder: Path, seen: set[str]) -> Iterator[Path]:
    """Walk through links to folders too, but into none twice, nor into a folder that is a scan."""
    if (real := os.path.realpath(folder)) in seen:
        return
    seen.add(real)
    if is_scan_folder(folder):
        yield folder
        return
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files(path, seen)
        else:
            yield path


def _is_scan(path: Path) -> bool:
    if path.is_dir():
        return True
    row = FORMATS.get(suffix_of(path) or "")
    if row is None or row.read is None:
        return False
    if path.parent.name in LABEL_FOLDERS:
        return not any((path.parent.parent / name).is_dir() for name in SCAN_FOLDERS)
    return row.read is not text.read_text or text.looks_like_points(path)
