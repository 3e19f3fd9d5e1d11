import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from pctx.data import loader as loader_module
from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.labels import Card, LabelSet
from pctx.data.loader import count_voxels, evaluation_loader, training_loader
from pctx.data.pipeline import Pipeline, count_class_scans
from pctx.data.prepare import OFF_FACE, crop, prepare, voxelize
from pctx.data.transforms import Rotate
from pctx.geometry.hierarchy import serial_hierarchy
from pctx.geometry.points import PointCloud

LABELS = LabelSet(names=("low", "high"), colors=((1, 1, 1), (2, 2, 2)), raw=((5,), (9,)))
FEATURES = FeatureSpec(fields=("height",))
SCANS = list("01234")


def random_cloud(seed, n=400):
    rng = np.random.default_rng(seed)
    coord = rng.uniform(0, 10, size=(n, 3)).astype(np.float32)
    return PointCloud(coord=coord, label=np.where(coord[:, 2] > 5, 9, 5))


class MadeScans(ScanDataset):
    card = Card(name="made", labels=LABELS)

    def scans(self, split):
        return [str(i) for i in range(5)]

    def read(self, scan):
        return random_cloud(int(scan))


@pytest.fixture
def pipeline():
    return Pipeline(
        dataset=MadeScans(),
        grid_size=0.5,
        features=FEATURES,
        augment={"rotate": Rotate()},
        max_points=100,
    )


def test_every_raw_point_finds_its_voxel_and_its_label():
    cloud = random_cloud(0, 3000)
    sample = prepare(cloud, grid_size=1.0, features=FEATURES, labels=LABELS)
    voxel = np.floor(cloud.coord + OFF_FACE).astype(int)
    voxel -= voxel.min(axis=0)
    np.testing.assert_array_equal(sample.points.grid_coord[sample.inverse].numpy(), voxel)
    spread = sample.spread(torch.arange(len(sample.points)))
    np.testing.assert_array_equal(spread.numpy(), sample.inverse.numpy())


def test_non_finite_points_have_no_voxel_and_change_no_other():
    cloud = random_cloud(0)
    coord = cloud.coord.copy()
    coord[[3, 77]] = [[np.nan, 0, 0], [0, np.inf, 0]]
    broken = PointCloud(coord=coord, label=cloud.label)
    sample = prepare(broken, grid_size=0.5, features=FEATURES, labels=LABELS)
    rest = prepare(broken.select(broken.finite), grid_size=0.5, features=FEATURES, labels=LABELS)
    assert sample.inverse[[3, 77]].tolist() == [-1, -1]
    assert len(sample.inverse) == 400
    torch.testing.assert_close(sample.points.feat, rest.points.feat)
    label = sample.spread(torch.zeros(len(sample.points), dtype=torch.int64))
    assert label[3] == -1
    assert (label == 0).sum() == 398


def test_labels_are_never_needed_to_prepare():
    cloud = PointCloud(coord=random_cloud(0).coord)
    assert prepare(cloud, grid_size=0.5, features=FEATURES, labels=LABELS).label is None


def test_a_crop_is_the_nearest_points_in_their_order():
    sample = prepare(random_cloud(0), grid_size=0.1, features=FEATURES, labels=LABELS)
    small = crop(sample.points, 50, np.random.default_rng(0))
    assert len(small) == 50
    assert small.offsets.tolist() == [0, 50]
    whole = {tuple(row) for row in sample.points.grid_coord.tolist()}
    assert all(tuple(row) in whole for row in small.grid_coord.tolist())
    centre_distance = (small.coord[:, :2] - small.coord[:, :2].mean(0)).norm(dim=1).max()
    assert centre_distance < 5


def test_a_balanced_crop_has_a_rare_class_in_its_middle_as_often_as_a_common_one():
    # One voxel in a hundred is high.
    xy = np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0)), axis=-1).reshape(-1, 2)
    coord = np.pad(xy, ((0, 0), (0, 1))).astype(np.float32)
    raw = np.where(np.arange(1600) % 100 == 0, 9, 5)
    raw[::50][1::2] = 0  # ignored
    labels = replace(LABELS, ignore=(0,))
    points = prepare(
        PointCloud(coord=coord, label=raw), grid_size=1.0, features=FEATURES, labels=labels
    ).points
    rng = np.random.default_rng(0)
    for centers, low, high in (("uniform", 0.0, 0.03), ("balanced", 0.42, 0.58)):
        middles = [crop(points, 1, rng, centers).label.item() for _ in range(400)]
        assert low <= middles.count(1) / 400 <= high
        assert centers == "uniform" or -1 not in middles


def test_a_cloud_of_ignored_points_is_cropped_all_the_same():
    labels = replace(LABELS, ignore=(0,))
    cloud = PointCloud(coord=random_cloud(0).coord, label=np.zeros(400, np.int64))
    points = prepare(cloud, grid_size=0.1, features=FEATURES, labels=labels).points
    assert len(crop(points, 50, np.random.default_rng(0), "balanced")) == 50


def plan(points, generator):
    """Shuffle four curves, as a backbone does."""
    curves = ("z", "z-trans", "hilbert", "hilbert-trans")
    return serial_hierarchy(
        points,
        curves=curves,
        strides=(2,),
        window_sizes=(16, 16),
        kernel_sizes=((5, 3), (3,)),
        generator=generator,
    )


def assert_same(one, other):
    """Both hold the same, to the bit."""
    mine, others = ([batch.points, *batch.hierarchy.levels] for batch in (one, other))
    for a, b in zip(mine, others, strict=True):
        for name in ("coord", "grid_coord", "offsets"):
            assert getattr(a, name).equal(getattr(b, name))
    assert one.points.feat.equal(other.points.feat)
    assert one.points.label.equal(other.points.label)
    for a, b in zip(one.hierarchy.levels, other.hierarchy.levels, strict=True):
        for mine, others in zip(a.windows, b.windows, strict=True):
            assert mine.index.equal(others.index)


@pytest.fixture
def planned(pipeline):
    """What an epoch of batches is, loaded in this process."""
    loader = training_loader(pipeline, SCANS, batch_size=2, plan=plan, seed=7)
    return list(loader)


@pytest.mark.parametrize(("workers", "start_method"), [(1, "fork"), (2, "fork"), (2, "spawn")])
def test_batches_and_plans_do_not_depend_on_workers(pipeline, planned, workers, start_method):
    loader = training_loader(
        pipeline,
        SCANS,
        batch_size=2,
        plan=plan,
        num_workers=workers,
        start_method=start_method,
        seed=7,
    )
    for one, other in zip(planned, loader, strict=True):
        assert_same(one, other)
    loader.sampler.set_epoch(1)
    assert not next(iter(loader)).points.coord.equal(planned[0].points.coord)


def test_an_epoch_that_is_resumed_goes_on_as_it_would_have(pipeline, planned):
    loader = training_loader(pipeline, SCANS, batch_size=2, plan=plan, seed=7)
    loader.sampler.resume(epoch=0, start=1)
    rest = list(loader)
    assert len(rest) == len(planned) - 1
    assert_same(rest[0], planned[1])


def test_curves_are_shuffled_anew_each_batch(pipeline):
    loader = training_loader(pipeline, SCANS, batch_size=5, num_samples=40, plan=plan)
    first = set()
    for batch in loader:
        level, *_ = batch.hierarchy.levels
        order = [windows.slot.argsort() for windows in level.windows]
        plain = [windows.slot.argsort() for windows in plan(batch.points, None).levels[0].windows]
        first.add(next(i for i, each in enumerate(plain) if each.equal(order[0])))
    assert len(first) > 1


def test_evaluation_plans_shuffle_nothing(pipeline):
    sample = next(iter(evaluation_loader(pipeline, SCANS, plan=plan)))
    for mine, plain in zip(
        sample.hierarchy.levels[0].windows, plan(sample.points, None).levels[0].windows, strict=True
    ):
        assert mine.index.equal(plain.index)


def test_a_batch_never_has_more_voxels_than_its_budget(pipeline):
    whole = replace(pipeline, max_points=None)
    sizes = count_voxels(whole, SCANS)
    assert sizes == [len(whole.sample(scan).points) for scan in SCANS]
    loader = training_loader(whole, SCANS, batch_points=900, sizes=sizes, num_samples=30)
    batches = [batch.points for batch in loader]
    assert len(batches) == len(loader)
    assert all(len(points) <= 900 for points in batches)
    # Two clouds of about 390 voxels fit.
    assert {points.num_clouds for points in batches} == {2}


def test_training_batches_are_packed_and_cropped(pipeline):
    loader = training_loader(pipeline, pipeline.dataset.scans("train"), batch_size=2, seed=0)
    batches = list(loader)
    assert [b.num_clouds for b in batches] == [2, 2, 1]
    assert all(b.points.offsets.diff().max() <= 100 for b in batches)
    assert set(batches[0].points.label.tolist()) <= {0, 1}


def test_evaluation_reads_scans_whole_and_in_order(pipeline):
    samples = list(evaluation_loader(pipeline, pipeline.dataset.scans("val")))
    assert len(samples) == 5
    np.testing.assert_array_equal(samples[2].label.numpy(), LABELS.encode(random_cloud(2).label))


def test_a_scan_without_labels_is_named():
    class Bare(MadeScans):
        def read(self, scan):
            return PointCloud(coord=np.zeros((4, 3), dtype=np.float32))

    pipeline = Pipeline(dataset=Bare(), grid_size=1.0, features=FEATURES)
    with pytest.raises(ValueError, match="2: no labels"):
        pipeline.sample("2")


def test_an_unknown_raw_id_is_named_with_its_scan_and_count():
    class Strange(MadeScans):
        def read(self, scan):
            cloud = random_cloud(0)
            return PointCloud(coord=cloud.coord, label=np.full(len(cloud), 65))

    pipeline = Pipeline(dataset=Strange(), grid_size=1.0, features=FEATURES)
    with pytest.raises(ValueError, match=r"4: raw ids 65 \(400 points\)"):
        pipeline.sample("4")


def test_a_voxel_has_the_means_and_the_commonest_label_of_its_points():
    coord = [[0.1, 0, 0], [0.2, 0, 0], [0.3, 0, 0.3], [5, 5, 5], [9, 9, 9], [9.1, 9, 9]]
    cloud = PointCloud(
        coord=np.array(coord, dtype=np.float32),
        intensity=np.array([1, 2, 6, 4, 5, 5], dtype=np.float32),
        label=np.array([9, 5, 9, 0, 9, 5]),
    )
    labels = LabelSet(names=("low", "high"), colors=((0, 0, 0),) * 2, raw=((5,), (9,)), ignore=(0,))
    features = FeatureSpec(fields=("intensity",))
    points = prepare(cloud, grid_size=1.0, features=features, labels=labels).points
    torch.testing.assert_close(points.feat[:, 0], torch.tensor([3.0, 4.0, 5.0]))
    torch.testing.assert_close(points.coord[0], torch.tensor([0.2, 0.0, 0.1]))
    # Most votes win, an ignored point has none, a tie goes to the lowest class.
    assert points.label.tolist() == [1, -1, 0]


def test_a_random_point_of_each_voxel_may_stand_for_it():
    cloud = replace(random_cloud(0, 3000), intensity=np.arange(3000, dtype=np.float32))
    features = FeatureSpec(fields=("intensity", "sensor_coord"))
    whole = voxelize(cloud, 2.0, features, LABELS)
    drawn = [voxelize(cloud, 2.0, features, LABELS, None, np.random.default_rng(i)) for i in (0, 1)]
    for points in drawn:
        assert points.grid_coord.equal(whole.grid_coord)
        row = points.feat[:, 0].long().numpy()
        np.testing.assert_array_equal(points.coord.numpy(), cloud.coord[row])
        np.testing.assert_array_equal(points.feat[:, 1:].numpy(), cloud.coord[row])
        np.testing.assert_array_equal(points.label.numpy(), LABELS.encode(cloud.label[row]))
        voxel = np.floor((points.coord.numpy() + OFF_FACE) / 2)
        np.testing.assert_array_equal(voxel, points.grid_coord)
    # Of 24 points a voxel, any may be drawn.
    assert (drawn[0].coord != drawn[1].coord).any(1).float().mean() > 0.8


def test_balanced_crops_prefer_the_class_that_fewer_scans_have(pipeline):
    class Rare(MadeScans):
        def read(self, scan):  # the class 9 is in two of five scans
            cloud = random_cloud(int(scan))
            label = np.where(cloud.coord[:, 0] < 5, 9, 5) if scan in "13" else np.full(400, 5)
            return replace(cloud, label=label)

    made = replace(pipeline, dataset=Rare(), augment={}, grid_size=1.0, crop_centers="balanced")
    assert count_class_scans(made.dataset) == (5, 2)
    rng = np.random.default_rng(0)
    whole = made.training_points("1", rng)

    def share(pipeline):
        crops = [pipeline.crop(whole, 1, rng) for _ in range(600)]
        return np.mean([int(each.label[0]) == 1 for each in crops])

    # Five to two, and even; of 600 draws the share varies by 0.02.
    assert share(replace(made, class_scans=(5, 2))) == pytest.approx(5 / 7, abs=0.08)
    assert share(made) == pytest.approx(1 / 2, abs=0.08)
    assert share(replace(made, class_scans=(0, 0))) == pytest.approx(1 / 2, abs=0.08)


def test_points_that_are_not_finite_are_never_drawn():
    coord = random_cloud(0).coord.copy()
    coord[::3] = np.nan
    cloud = PointCloud(coord=coord, label=random_cloud(0).label)
    points = voxelize(cloud, 1.0, FEATURES, LABELS, None, np.random.default_rng(0))
    assert points.coord.isfinite().all()
    assert points.grid_coord.equal(voxelize(cloud, 1.0, FEATURES, LABELS).grid_coord)


def test_random_points_are_drawn_anew_each_time(pipeline):
    made = replace(pipeline, augment={}, voxel_points="random", max_points=None, grid_size=3.0)
    loader = training_loader(made, ["0"], num_samples=4)
    assert len({tuple(batch.points.coord.flatten().tolist()) for batch in loader}) == 4


@pytest.mark.parametrize(("name", "value"), [("voxel_points", "first"), ("crop_centers", "rare")])
def test_a_choice_that_is_none_is_refused(pipeline, name, value):
    with pytest.raises(ValueError, match=f"data.{name} must be .* or .*, found '{value}'"):
        replace(pipeline, **{name: value})


def test_a_field_that_no_scan_has_is_filled_or_named(pipeline):
    spec = FeatureSpec(fields=("height", "intensity", "omega"))
    with pytest.raises(ValueError, match=r"0: the model reads intensity and omega.*data.fill="):
        replace(pipeline, features=spec).training_points("0", np.random.default_rng(0))
    filled = replace(pipeline, features=spec, fill={"intensity": 3, "omega": -1})
    assert filled.sample("0").points.feat[:, 1:].unique(dim=0).tolist() == [[3, -1]]
    with pytest.raises(ValueError, match="fill names color"):
        replace(pipeline, fill={"color": 1})


def test_a_scan_that_is_not_augmented_is_read_once(pipeline):
    class Counted(MadeScans):
        def __init__(self):
            self.reads = []

        def read(self, scan):
            self.reads.append(scan)
            return super().read(scan)

    plain = replace(pipeline, dataset=Counted(), augment={"rotate": None})
    loader = training_loader(plain, plain.dataset.scans("train"), batch_size=2, num_samples=20)
    batches = list(loader)
    assert sorted(plain.dataset.reads) == list("01234")
    # The crop is drawn anew each time.
    assert len({tuple(b.points.coord[0].tolist()) for b in batches}) > 5
    turned = replace(pipeline, dataset=Counted())
    list(training_loader(turned, turned.dataset.scans("train"), batch_size=2, num_samples=20))
    assert len(turned.dataset.reads) == 20


class Places(Dataset):
    """Gives the numbers that it is asked for."""

    def __len__(self):
        return 9

    def __getitem__(self, index):
        return index


def test_signals_to_all_processes_of_a_run_leave_its_loaders_at_work():
    """As a cluster and `timeout` send them: the first saves, for which it needs the others."""
    batches = iter(loader_module._loader(Places(), 1))
    found = [int(next(batches))]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(batches._workers[0].pid, number)
    assert found + [int(batch) for batch in batches] == [*range(9)]
