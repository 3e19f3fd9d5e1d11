"""A small world in which the commands of the pages run: every file that they name, tiny."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from pctx.data.io.formats import write
from tests.toy import LABELS, toy_checkpoint, toy_cloud

TILES = ("77050_627755", "77050_627760", "77055_627755", "77055_627760", "77060_627755")
TINY = ("data.samples_per_epoch=2", "data.max_points=500", "data.num_workers=0", "seed=0")
STREET = ("data.dataset.num_train=2", "data.dataset.num_val=1", "data.dataset.cache=null")


def full_cloud(seed=0, n=1500):
    """A toy cloud with every field that a model may read."""
    rng = np.random.default_rng(seed)
    cloud = toy_cloud(n, seed)
    return replace(
        cloud,
        color=rng.integers(0, 256, (n, 3)).astype(np.uint8),
        intensity=rng.uniform(0, 1, n).astype(np.float32),
        extra={
            "return_number": np.ones(n, np.uint8),
            "number_of_returns": np.ones(n, np.uint8),
        },
    )


def build(folder: Path) -> None:
    """Write the files."""
    for number, name in enumerate(("area1/a.laz", "area1/b.laz", "area2/c.laz")):
        path = folder / "scans" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, full_cloud(number))
    rows = zip(LABELS.names, LABELS.colors, LABELS.raw, strict=True)
    card = {
        "name": "scans",
        "classes": [{"name": n, "color": list(c), "raw": list(r)} for n, c, r in rows],
    }
    (folder / "scans" / "card.yaml").write_text(yaml.safe_dump(card))
    for name in ("scan.laz", "tile.laz", "labelled.laz", "scan.ply", "scan.npz"):
        write(folder / name, full_cloud())
    (folder / "tiles").mkdir()
    for number, tile in enumerate(TILES):
        name = f"test_data_{tile}_LA93_IGN69.laz"
        write(folder / "tiles" / name, full_cloud(number))
    write(folder / TILES_LAST, full_cloud())
    (folder / "isprs").mkdir()
    for number, sample in enumerate((11, 21, 31, 41, 51, 61, 71)):
        write(folder / "isprs" / f"samp{sample}-utm.laz", full_cloud(number))
    for number, name in enumerate(("train/0", "train/7", "val/25612")):
        path = folder / "range_images" / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, range_image(number))
    driving(folder)
    toy_checkpoint().save(folder / "model.pt")


def range_image(seed):
    """x, y, z, intensity, depth and label of 32 beams."""
    rng = np.random.default_rng(seed)
    image = rng.uniform(1, 20, (32, 60, 6)).astype(np.float32)
    image[..., 4] = np.linalg.norm(image[..., :3], axis=-1)
    image[..., 5] = np.arange(32)[:, None] % 3
    return image


TILES_LAST = f"test_data_{TILES[-1]}_LA93_IGN69.laz"


def driving(folder: Path) -> None:
    """Write scans as KITTI and nuScenes have them, bare and in SemanticKITTI's folders."""
    rng = np.random.default_rng(0)
    points = rng.normal(0, 10, (800, 4)).astype(np.float32)
    points[:, 3] = rng.uniform(0, 1, len(points)).round(2)
    points.tofile(folder / "000000.bin")
    ring = rng.integers(0, 32, (len(points), 1)).astype(np.float32)
    np.concatenate([points, ring], 1).tofile(folder / "sweep.pcd.bin")
    labels = np.resize(np.array([40, 50, 70, 10], np.uint32), len(points))
    for sequence in ("00", "08"):
        place = folder / "semantic_kitti" / "sequences" / sequence
        for below, array in (("velodyne/000000.bin", points), ("labels/000000.label", labels)):
            (place / below).parent.mkdir(parents=True, exist_ok=True)
            array.tofile(place / below)
    (folder / "sequences" / "00" / "velodyne").mkdir(parents=True)
    points.tofile(folder / "sequences" / "00" / "velodyne" / "000000.bin")
    (folder / "sequences" / "00" / "labels").mkdir()
    labels.tofile(folder / "sequences" / "00" / "labels" / "000000.label")
