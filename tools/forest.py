"""What a model of tiles from the air has to beat: a random forest, and the most frequent class.

The forest sees of each point its height and the eigenvalues of its 20 nearest neighbours. It needs
scikit-learn (`pip install 'pctx[test]'`) and tiles of at most a few million points.

python tools/forest.py tiles --card ign_lidar_hd
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from scipy.spatial import cKDTree
from sklearn.ensemble import RandomForestClassifier

from pctx.data.datasets.folder import FolderDataset
from pctx.data.surroundings import height_above_ground
from pctx.data.terrain import height_above_terrain
from pctx.engine.metrics import Scores, confusion_matrix

HEIGHTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "height": height_above_ground,
    "terrain_height": height_above_terrain,
}


def describe(coord: np.ndarray, height: str, num_neighbors: int = 20) -> np.ndarray:
    """Give (n, 7): height, linearity, planarity, scattering, verticality, roughness, spacing."""
    near, index = cKDTree(coord).query(coord, num_neighbors)
    around = coord[index] - coord[index].mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.einsum("nki,nkj->nij", around, around) / num_neighbors)
    c, b, a = np.sqrt(values.clip(0)).T
    longest = a.clip(1e-6)
    shape = [(a - b) / longest, (b - c) / longest, c / longest, 1 - abs(vectors[:, 2, 0]), c]
    return np.stack([HEIGHTS[height](coord), *shape, near[:, -1]], axis=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on one split, score every labelled point of the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", help="of scans with labels")
    parser.add_argument("--card", help="its card; by default card.yaml in it")
    parser.add_argument("--height", choices=HEIGHTS, default="height", help="which of the two")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    data = FolderDataset(given.folder, given.card)
    labels = data.card.labels

    def points(split: str) -> tuple[np.ndarray, np.ndarray]:
        clouds = [data.read(scan) for scan in data.scans(split)]
        known = [cloud for cloud in clouds if cloud.label is not None]
        described = np.concatenate([describe(cloud.coord, given.height) for cloud in known])
        truth = np.concatenate([labels.encode(np.asarray(cloud.label)) for cloud in known])
        return described[truth >= 0], truth[truth >= 0]

    described, truth = points("train")
    forest = RandomForestClassifier(
        100, min_samples_leaf=5, class_weight="balanced_subsample", random_state=given.seed
    ).fit(described, truth)
    for split in ("val", "test"):
        described, truth = points(split)
        likeliest = np.full_like(truth, np.bincount(truth).argmax())
        for name, found in (("forest", forest.predict(described)), ("one class", likeliest)):
            confusion = confusion_matrix(truth, found, len(labels))
            scores = Scores(confusion=confusion, labels=labels)
            each = "  ".join(f"{value:.3f}" for value in scores.iou)
            print(f"{split:4}  {name:9}  mIoU {scores.miou:.3f}  OA {scores.oa:.3f}  IoU {each}")


if __name__ == "__main__":
    main()
