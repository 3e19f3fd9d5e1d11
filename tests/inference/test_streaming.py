"""A file labelled in little memory is the file labelled as a whole."""

import gc
import struct
import tracemalloc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from pctx.data import las_scene
from pctx.data.io import las
from pctx.data.io.formats import read, write
from pctx.geometry.points import PointCloud
from pctx.inference import streaming
from pctx.inference.predictor import Predictor
from pctx.inference.streaming import Columns, label_las
from tests.toy import LABELS, toy_checkpoint, toy_cloud

ALL = Columns(probabilities=True, measures=("entropy", "margin"))


@pytest.fixture(scope="module")
def checkpoint():
    return toy_checkpoint(fields=("height", "intensity", "shape"))


@pytest.fixture
def scan(tmp_path):
    """A LAZ file far from its origin, in no order of place."""
    cloud = toy_cloud(12_000, extent=60)
    rng = np.random.default_rng(2)
    whole = PointCloud(
        coord=cloud.coord,
        origin=np.array([651_000.0, 6_861_000.0, 40.0]),
        label=cloud.label,
        intensity=rng.integers(0, 2000, 12_000).astype(np.float32),
        color=rng.integers(0, 255, (12_000, 3)).astype(np.uint8),
    )
    path = tmp_path / "scan.laz"
    write(path, whole)
    return path


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(las_scene, "BLOCK", 1700)
    monkeypatch.setattr(las, "BLOCK", 1900)


def whole(predictor, source, target, columns=ALL):
    cloud = read(source)
    write(
        target,
        cloud,
        prediction=predictor(cloud),
        source=source,
        probabilities=columns.probabilities,
        also=columns.measures,
        overwrite=True,
    )
    return read(target)


@pytest.mark.parametrize("suffix", [".laz", ".las"])
@pytest.mark.parametrize("settings", [{}, {"tile": 25.0, "overlap": 8.0}, {"views": 2}])
def test_the_file_is_that_of_the_whole_cloud(checkpoint, scan, settings, suffix, tmp_path):
    predictor = Predictor(checkpoint, **settings)
    target = tmp_path / f"out{suffix}"
    assert label_las(predictor, scan, target, columns=ALL) == 12_000
    streamed = read(target)
    expected = whole(predictor, scan, tmp_path / f"whole{suffix}")
    # Points of a tile come in another order, so that the last bits of their means differ.
    assert (streamed.label == expected.label).mean() > 0.999
    for name, column in expected.extra.items():
        np.testing.assert_allclose(streamed.extra[name], column, atol=2e-3)
    np.testing.assert_array_equal(streamed.xyz, expected.xyz)
    assert not list(tmp_path.glob(".*"))


def test_the_file_is_that_of_the_whole_cloud_on_any_grid(tmp_path):
    write(tmp_path / "scan.las", toy_cloud(12_000, extent=60))
    predictor = Predictor(replace(toy_checkpoint(), grid_size=0.3))
    label_las(predictor, tmp_path / "scan.las", tmp_path / "out.las")
    expected = predictor(read(tmp_path / "scan.las")).raw
    assert (read(tmp_path / "out.las").label == expected).mean() > 0.999


def test_only_the_class_differs_from_the_source(checkpoint, real_data, tmp_path):
    source = real_data / "PDAL__PDAL/test/data/las/sample_c.las"
    predictor = Predictor(checkpoint, tile=30.0, overlap=10.0)
    label_las(predictor, source, tmp_path / "out.las")
    before, after = source.read_bytes(), (tmp_path / "out.las").read_bytes()
    assert len(before) == len(after)
    start, length = (
        struct.unpack_from("<I", before, 96)[0],
        struct.unpack_from("<H", before, 105)[0],
    )
    places = {start + i * length + 15 for i in range(len(read(source)))}
    assert {i for i in range(len(before)) if before[i] != after[i]} <= places


def test_a_killed_run_goes_on_where_it_stopped(checkpoint, scan, tmp_path, monkeypatch):
    settings = {"tile": 20.0, "overlap": 8.0}
    target = tmp_path / "out.laz"
    once = Predictor(checkpoint, **settings)
    label_las(once, scan, tmp_path / "once.laz", columns=ALL)

    def run(stop_after):
        predictor, seen = Predictor(checkpoint, **settings), []
        features = predictor.model.features

        def counted(points, hierarchy):
            if len(seen) == stop_after:
                raise KeyboardInterrupt
            seen.append(len(points))
            return features(points, hierarchy)

        monkeypatch.setattr(predictor.model, "features", counted)
        try:
            label_las(predictor, scan, target, columns=ALL)
        except KeyboardInterrupt:
            assert not target.exists()
        return len(seen)

    passes = [run(4)]
    notes = tmp_path / ".out.laz.work/labelled"
    notes.write_text(notes.read_text() + "8")  # the kill came within a line
    passes += [run(3), run(100)]
    assert passes == [4, 3, 2]
    assert target.read_bytes() == (tmp_path / "once.laz").read_bytes()


def test_results_of_a_tile_are_gone_before_the_next_is_looked_at(
    checkpoint, scan, tmp_path, monkeypatch
):
    predictor = Predictor(checkpoint, tile=20.0)
    label_boxes, told, held = predictor.label_boxes, [], []

    def counted(scene, boxes):
        held.append(sum(result() is not None for result in told))
        for result in label_boxes(scene, boxes):
            told.append(weakref.ref(result))
            yield result

    monkeypatch.setattr(predictor, "label_boxes", counted)
    label_las(predictor, scan, tmp_path / "out.laz")
    assert held == [0] * 9


def test_memory_of_no_phase_grows_with_the_points(tmp_path, monkeypatch):
    """Four times as many, as dense, through buffers and tiles of the same size."""
    monkeypatch.setattr(las_scene, "BLOCK", 4_000)
    monkeypatch.setattr(las, "BLOCK", 4_000)
    predictor = Predictor(replace(toy_checkpoint(), grid_size=1.0), tile=50.0, overlap=2.0)
    rng, peaks = np.random.default_rng(0), {}

    def without_a_model(view, cloud, rows, mine, scene):
        return np.full((len(mine), 3), 1 / 3, np.float32), None

    monkeypatch.setattr(predictor, "_look", without_a_model)

    def watched(phase):
        def run(*arguments):
            gc.collect()
            tracemalloc.reset_peak()
            found = phase(*arguments)
            peaks.setdefault(phase.__name__, []).append(tracemalloc.get_traced_memory()[1])
            return found

        return run

    monkeypatch.setattr(streaming, "_scene", watched(streaming._scene))
    for name in ("label", "join", "copy"):
        monkeypatch.setattr(streaming._Run, name, watched(getattr(streaming._Run, name)))
    for tiles in (3, 6):  # either has one in the middle, which sees most
        extent = 50 * tiles
        coord = rng.uniform(0, [extent, extent, 3], size=(2 * extent**2, 3))
        write(tmp_path / "scan.las", PointCloud(coord=coord.astype(np.float32)), overwrite=True)
        del coord
        tracemalloc.start()
        label_las(predictor, tmp_path / "scan.las", tmp_path / "out.las", overwrite=True)
        tracemalloc.stop()
    # Boxes and cells take a little each; a column of points is a byte a point or more.
    added = 2 * (300**2 - 150**2)
    assert all(more - few < added for few, more in peaks.values()), peaks
    assert list(peaks) == ["_scene", "label", "join", "copy"]


def test_a_run_does_not_go_on_with_what_another_left(checkpoint, scan, tmp_path, monkeypatch):
    predictor = Predictor(checkpoint, tile=20.0)
    label_boxes, seen = predictor.label_boxes, []

    def some(scene, boxes):
        seen.append(boxes)
        if len(seen) > 4:
            raise OSError("full")
        return label_boxes(scene, boxes)

    monkeypatch.setattr(predictor, "label_boxes", some)
    with pytest.raises(OSError, match="full"):
        label_las(predictor, scan, tmp_path / "out.laz")
    other = Predictor(toy_checkpoint(fields=("height", "intensity", "shape"), seed=5), tile=20.0)
    label_las(other, scan, tmp_path / "out.laz")
    label_las(other, scan, tmp_path / "fresh.laz")
    assert (tmp_path / "out.laz").read_bytes() == (tmp_path / "fresh.laz").read_bytes()


def test_a_kill_at_any_write_leaves_a_run_that_ends_the_same(checkpoint, scan, tmp_path):
    predictor = Predictor(checkpoint, tile=30.0, overlap=8.0)
    label_las(predictor, scan, tmp_path / "once.laz")
    work = tmp_path / ".out.laz.work"
    # The points are sorted only in part.
    work.mkdir()
    (work / "manifest.json").write_text("{")
    (work / "points.bin").write_bytes(b"\0" * 100)
    (work / "labelled").write_text("0\n")
    label_las(predictor, scan, tmp_path / "out.laz")
    assert (tmp_path / "out.laz").read_bytes() == (tmp_path / "once.laz").read_bytes()


def test_only_some_classes_and_skipped_codes_keep_the_others(checkpoint, scan, tmp_path):
    predictor = Predictor(checkpoint, tile=30.0, skip=(6,))
    label_las(predictor, scan, tmp_path / "out.laz", only=[0])
    label_las(predictor, scan, tmp_path / "all.laz")
    before, some, every = (
        read(p).label for p in (scan, tmp_path / "out.laz", tmp_path / "all.laz")
    )
    skipped = before == 6
    np.testing.assert_array_equal(some[skipped], 6)
    np.testing.assert_array_equal(every[skipped], 6)
    changed = (every == 2) & ~skipped
    np.testing.assert_array_equal(some[changed], 2)
    np.testing.assert_array_equal(some[~changed], before[~changed])


def test_far_strays_and_no_points_are_ordinary(checkpoint, tmp_path):
    cloud = toy_cloud(300)
    # LAS holds 2^32 steps of a millimetre: the stray is 2,000 km away.
    far = np.concatenate([cloud.coord, [[2_000_000, 0, 0]]]).astype(np.float32)
    for name, coord in (("far", far), ("none", far[:0])):
        source, target = tmp_path / f"{name}.las", tmp_path / f"{name}_out.las"
        write(source, PointCloud(coord=coord, intensity=np.ones(len(coord), np.float32)))
        predictor = Predictor(checkpoint)
        assert label_las(predictor, source, target) == len(coord)
        expected = predictor(read(source)).raw
        np.testing.assert_array_equal(read(target).label, expected)


@pytest.mark.parametrize("settings", [{}, {"tile": 5.0, "overlap": 2.0}])
def test_a_stray_point_of_a_file_changes_no_other_label(settings, tmp_path):
    cloud = toy_cloud(5000)
    predictor = Predictor(toy_checkpoint(fields=("coord", "height")), **settings)
    label = {}
    for name, coord in (
        ("sound", cloud.coord),
        ("low", np.insert(cloud.coord, 1000, [-50_000, 0, -300], axis=0)),
    ):
        source, target = tmp_path / f"{name}.las", tmp_path / f"{name}_out.las"
        write(source, PointCloud(coord=coord))
        label_las(predictor, source, target)
        label[name] = read(target).label
    assert label["low"][1000] == LABELS.unlabeled
    np.testing.assert_array_equal(np.delete(label["low"], 1000), label["sound"])


def test_a_part_of_a_file_is_read_as_the_whole_is(tmp_path):
    """Colours of 8 bits and of 16 are told apart, and black ones from none, by the whole file."""
    cloud = toy_cloud(4000, extent=60)
    color = np.full((4000, 3), 200, np.uint8)
    color[cloud.coord[:, 0] < 30] = 0
    write(tmp_path / "scan.las", PointCloud(coord=cloud.coord, color=color))
    predictor = Predictor(toy_checkpoint(fields=("color",)), tile=10.0, overlap=2.0)
    label_las(predictor, tmp_path / "scan.las", tmp_path / "out.las")
    expected = predictor(read(tmp_path / "scan.las")).raw
    assert (read(tmp_path / "out.las").label == expected).mean() > 0.999


def test_memory_that_runs_out_halves_a_tile_of_a_file(checkpoint, scan, tmp_path, monkeypatch):
    predictor = Predictor(checkpoint, overlap=5.0)
    features = predictor.model.features

    def too_large(points, hierarchy):
        if len(points) > 5_000:
            raise MemoryError
        return features(points, hierarchy)

    monkeypatch.setattr(predictor.model, "features", too_large)
    label_las(predictor, scan, tmp_path / "out.laz")
    expected = whole(Predictor(checkpoint), scan, tmp_path / "whole.laz")
    assert (read(tmp_path / "out.laz").label == expected.label).mean() > 0.9
