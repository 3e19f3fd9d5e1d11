"""Small real files of each format, cut or written anew where the real ones are large or lack.

A seed is the files of a scan by name, the first of which is the one to read.
"""

import io
import tempfile
from pathlib import Path

import numpy as np

from pctx.data.io.formats import read, write
from pctx.data.io.labelled import Labelled
from pctx.data.io.pcd import write_pcd

LARGEST = 40_000
"""Bytes of a file that is taken as it is."""
LARGEST_E57 = 120_000
"""Of one that is E57, of which the smaller ones hold few points."""
FORMATS = (
    *("las", "laz", "ply", "pcd", "text", "ptx", "kitti", "nuscenes", "npy", "npz", "folder"),
    "e57",
)
_SUFFIXES = {
    "las": (".las",),
    "laz": (".laz",),
    "ply": (".ply",),
    "pcd": (".pcd",),
    "text": (".txt", ".xyz", ".xyzi", ".pts"),
    "ptx": (".ptx",),
    "npy": (".npy",),
    "npz": (".npz",),
    "e57": (".e57",),
}
_SCAN = "mit-han-lab__spvnas/assets/000000"
_SMALL = "PDAL__PDAL/test/data/las/interesting.las"
_IMAGE = "ika-rwth-aachen__PCLSegmentation_semantic_kitti/dataset_samples/semantic_kitti/val/4.npy"


def seeds(root, kind):
    """Give the seeds of a format."""
    found = [
        {path.name: path.read_bytes()}
        for path in sorted(root.rglob("*"))
        if path.name.lower().endswith(_SUFFIXES.get(kind, ("none",)))
        and path.is_file()
        and path.stat().st_size <= (LARGEST_E57 if kind == "e57" else LARGEST)
    ]
    return found + _MADE.get(kind, lambda _: [])(root)


def _kitti(root):
    scan, label = ((root / f"{_SCAN}.{end}").read_bytes() for end in ("bin", "label"))
    byte = np.frombuffer(label, "<u4").astype("u1").tobytes()
    return [
        {"a.bin": scan[: 16 * n], "a.label": label[: 4 * n] if n % 2 else byte[:n]}
        for n in (1, 50, 333, 1500)
    ]


def _nuscenes(root):
    path = next(root.glob("open-mmlab__mmdetection3d_HEAD/demo/data/nuscenes/*.pcd.bin"))
    scan = path.read_bytes()
    return [{"a.pcd.bin": scan[: 20 * n], "a_lidarseg.bin": bytes(n)} for n in (1, 100, 1000)]


def _npy(root):
    image, label = np.load(root / _IMAGE)[:16, :40], np.arange(60, dtype=np.int32)
    return [{"a.npy": _saved(array)} for array in (image, image.reshape(-1, 6)[:, :4])] + [
        {"points/a.npy": _saved(image.reshape(-1, 6)[:60, :3]), "labels/a.npy": _saved(label)}
    ]


def _npz(root):
    return [{"a.npz": _written(read(root / name), "a.npz")} for name in (_SMALL, _IMAGE)]


def _pcd(root):
    cloud = read(root / _SMALL)
    return [
        {"a.pcd": _written(cloud, "a.pcd", encoding)}
        for encoding in ("ascii", "binary", "binary_compressed")
    ]


def _text(root):
    return [{f"a.{end}": _written(read(root / _SMALL), f"a.{end}")} for end in ("txt", "csv")]


def _folder(root):
    cloud = read(root / _SMALL)
    arrays = {"coord": cloud.coord, "color": cloud.color, "segment": cloud.label[:, None]}
    arrays["instance"] = np.arange(len(cloud))
    return [{f"scene/{name}.npy": _saved(array) for name, array in arrays.items()}]


_MADE = {
    **{"kitti": _kitti, "nuscenes": _nuscenes, "npy": _npy, "npz": _npz},
    **{"pcd": _pcd, "text": _text, "folder": _folder},
}


def _saved(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _written(cloud, name, encoding=None):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if encoding is None:
            write(path, cloud)
        else:
            write_pcd(path, Labelled(cloud=cloud), encoding=encoding)
        return path.read_bytes()
