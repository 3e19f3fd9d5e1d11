"""CachedDataset: scans that are mapped as they were read."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from pctx.data.cache import CachedDataset, keep_all
from pctx.data.dataset import ScanDataset
from pctx.data.datasets.folder import FolderDataset
from pctx.data.features import FeatureSpec
from pctx.data.io.atomic import sweep
from pctx.data.io.formats import read, write
from pctx.data.labels import Card
from pctx.data.loader import count_voxels
from pctx.data.pipeline import Pipeline
from pctx.data.transforms import Flip, Jitter, Rotate, Scale
from pctx.geometry.points import PointCloud
from tests.toy import LABELS, toy_cloud

CARD = Card(name="toy", labels=LABELS)
FIELDS = ("coord", "color", "intensity", "normal", "label", "instance")


def assert_same(found, cloud):
    np.testing.assert_array_equal(found.origin, cloud.origin)
    assert found.extra.keys() == cloud.extra.keys()
    pairs = [(getattr(found, name), getattr(cloud, name)) for name in FIELDS]
    pairs += [(found.extra[name], cloud.extra[name]) for name in cloud.extra]
    for one, other in pairs:
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw" / "deep"
    folder.mkdir(parents=True)
    for i in range(6):
        write(folder / f"scan_{i}.npz", toy_cloud(200 + i, seed=i))
    return folder.parent


def dataset(raw, folder, **settings):
    return CachedDataset(FolderDataset(raw, CARD), folder, settings)


def every(cached):
    return [scan for split in cached.splits for scan in cached.scans(split)]


def keep(raw, folder, workers=0):
    cached = dataset(raw, folder)
    return list(keep_all(cached, every(cached), num_workers=workers))


def test_a_kept_scan_is_what_was_read_mapped_and_not_copied(raw, tmp_path):
    cached = dataset(raw, tmp_path / "cache")
    scans = every(cached)
    assert not any(map(cached.has, scans))
    assert_same(cached.read(scans[0]), cached.dataset.read(scans[0]))
    assert list(keep_all(cached, scans)) == [""] * 6
    for scan in scans:
        found = cached.read(scan)
        assert_same(found, cached.dataset.read(scan))
        assert not found.coord.flags.owndata and not found.coord.flags.writeable
        assert found.coord.flags.aligned


@pytest.mark.parametrize(
    "name",
    [
        "PDAL__PDAL/test/data/las/interesting.las",
        "laspy__laspy/tests/data/extrabytes.las",
        "IGNF__ign-pdal-tools/test/data/test_data_77050_627760_LA93_IGN69.laz",
        "hobuinc__laz-perf/cpp/test/raw-sets/no-points-1.3.laz",
    ],
)
def test_real_scans_are_kept_to_the_bit(real_data, tmp_path, name):
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / Path(name).name).symlink_to(real_data / name)
    cached = dataset(folder, tmp_path / "cache")
    scan = cached.scans("train")[0]
    cached.keep(scan)
    assert cached.has(scan)
    assert_same(cached.read(scan), read(real_data / name))


def test_a_file_that_changed_is_read_anew(raw, tmp_path):
    cached = dataset(raw, tmp_path)
    scan = every(cached)[0]
    cached.keep(scan)
    before = cached.path(scan).stat().st_mtime_ns
    cached.keep(scan)
    assert cached.path(scan).stat().st_mtime_ns == before
    write(raw / scan, toy_cloud(50, seed=9), overwrite=True)
    assert not cached.has(scan)
    assert len(cached.read(scan)) == 50
    cached.keep(scan)
    assert cached.has(scan) and len(cached.read(scan)) == 50


def test_other_settings_are_another_key(raw, tmp_path):
    cached = dataset(raw, tmp_path, num_scans=1)
    scan = every(cached)[0]
    cached.keep(scan)
    assert dataset(raw, tmp_path, num_scans=1).has(scan)
    assert not dataset(raw, tmp_path, num_scans=5).has(scan)


def test_a_raw_folder_may_be_moved(raw, tmp_path):
    keep(raw, tmp_path / "cache")
    moved = raw.rename(tmp_path / "moved")
    cached = dataset(moved, tmp_path / "cache")
    assert all(map(cached.has, every(cached)))


@pytest.mark.parametrize("size", [0, 10, 40, 2000])
def test_a_damaged_file_is_read_anew(raw, tmp_path, size):
    cached = dataset(raw, tmp_path)
    scan = every(cached)[0]
    cached.keep(scan)
    os.truncate(cached.path(scan), size)
    assert not cached.has(scan)
    cached.keep(scan)
    assert cached.has(scan)


def test_a_broken_file_is_named_and_stops_no_other(raw, tmp_path):
    (raw / "deep" / "scan_2.npz").write_bytes(b"PK\3\4 and nothing else")
    outcomes = keep(raw, tmp_path / "cache", workers=2)
    (sentence,) = [outcome for outcome in outcomes if outcome]
    assert "scan_2.npz" in sentence
    assert len(list((tmp_path / "cache").rglob("*.scan"))) == 5


def test_two_runs_at_once_both_end_right(raw, tmp_path):
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=keep, args=(raw, tmp_path / "cache")) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
        assert run.exitcode == 0
    cached = dataset(raw, tmp_path / "cache")
    for scan in every(cached):
        assert_same(cached.read(scan), cached.dataset.read(scan))
    assert not list((tmp_path / "cache").rglob(".*"))


class Slow(ScanDataset):
    """Takes its time over every scan."""

    card = CARD

    def scans(self, split):
        return [f"scan_{i}" for i in range(8)] if split == "train" else []

    def read(self, scan):
        time.sleep(0.05)
        return toy_cloud(100, seed=int(scan[5:]))


def test_a_run_that_was_killed_goes_on(tmp_path):
    slow = CachedDataset(Slow(), tmp_path)
    scans = slow.scans("train")
    run = multiprocessing.get_context("fork").Process(target=lambda: list(keep_all(slow, scans)))
    run.start()
    while not any(map(slow.has, scans[:3])):
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    run.join()
    kept = {scan: slow.path(scan).stat().st_mtime_ns for scan in scans if slow.has(scan)}
    assert 0 < len(kept) < 8
    assert list(keep_all(slow, scans)) == [""] * 8
    assert all(map(slow.has, scans))
    assert all(slow.path(scan).stat().st_mtime_ns == when for scan, when in kept.items())


def test_old_unfinished_files_are_swept_and_young_ones_are_not(tmp_path):
    old, young, other = (tmp_path / f".{n}" for n in ("x.1.part.scan", "y.2.part.scan", "z.part1"))
    for path in (old, young, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (0, 0))
    sweep(tmp_path)
    assert young.exists() and other.exists() and not old.exists()


def test_training_reads_a_cache_and_changes_nothing_in_it(raw, tmp_path):
    keep(raw, tmp_path / "cache")
    cached = dataset(raw, tmp_path / "cache")
    augment = {"rotate": Rotate(), "scale": Scale(), "flip": Flip(), "jitter": Jitter()}
    made = [
        Pipeline(
            dataset=source,
            grid_size=0.5,
            features=FeatureSpec(fields=("coord", "height", "shape")),
            augment=augment,
        )
        for source in (cached, cached.dataset)
    ]
    scan = every(cached)[1]
    one, other = (each.training_points(scan, np.random.default_rng(3)) for each in made)
    assert one.feat.equal(other.feat) and one.label.equal(other.label)
    one, other = (each.sample(scan) for each in made)
    assert one.points.feat.equal(other.points.feat) and one.inverse.equal(other.inverse)
    assert_same(cached.read(scan), cached.dataset.read(scan))


def test_voxels_are_counted_once_and_anew_where_files_have_changed(raw, tmp_path):
    (tmp_path / "cache").mkdir()

    class Counting(Pipeline):
        def count(self, scan):
            counted.append(scan)
            return super().count(scan)

    def counts(grid_size=0.5, **settings):
        counted.clear()
        cached = dataset(raw, tmp_path / "cache", **settings)
        features = FeatureSpec(fields=("coord",))
        pipeline = Counting(dataset=cached, grid_size=grid_size, features=features)
        return count_voxels(pipeline, every(cached)), [len(set(counted)), len(counted)]

    counted: list[str] = []
    expected, first = counts()
    assert first == [6, 6] and counts() == (expected, [0, 0])
    assert expected != counts(2.0)[0] and counts(2.0)[1] == [0, 0]
    assert counts(fields="others")[1] == [6, 6] and counts()[1] == [6, 6]
    scans = every(dataset(raw, tmp_path / "cache"))
    write(raw / "deep" / "scan_3.npz", toy_cloud(50, seed=3), overwrite=True)
    place = next(i for i, scan in enumerate(scans) if "scan_3" in scan)
    found, again = counts()
    assert again == [1, 1] and found[place] < 60 < expected[place]
    assert [c for i, c in enumerate(found) if i != place] == [
        c for i, c in enumerate(expected) if i != place
    ]
    for damaged in ("", "{", '{"a": 1}'):
        (tmp_path / "cache" / "voxels_0.5.json").write_text(damaged)
        assert counts() == (found, [6, 6])
    (tmp_path / "cache" / "voxels_0.5.json").unlink()
    (tmp_path / "cache" / "voxels_0.5.json").mkdir()  # can be neither read nor written
    assert counts() == (found, [6, 6])


def test_columns_of_every_kind_are_kept(tmp_path):
    n = 7
    cloud = PointCloud(
        coord=np.full((n, 3), np.nan, np.float32),
        origin=np.array([1e6, -2.5, 1e-9]),
        color=np.arange(3 * n, dtype=np.uint8).reshape(n, 3),
        normal=np.zeros((n, 3), np.float32)[::1],
        extra={
            "flags": np.arange(n) % 2 == 0,
            "a.b": np.arange(n, dtype=">u2"),
            "many": np.zeros((n, 2, 2), np.float16),
            "every other": np.arange(2 * n)[::2],
        },
    )

    class One(Slow):
        def read(self, scan):
            return cloud

    cached = CachedDataset(One(), tmp_path)
    cached.keep("scan_0")
    assert_same(cached.read("scan_0"), cloud)
