from dataclasses import replace

import numpy as np
import pytest
import torch

from pctx.data.prepare import prepare
from pctx.geometry.points import PointCloud
from pctx.inference.predictor import Predictor
from tests.toy import LABELS, toy_checkpoint, toy_cloud


@pytest.fixture(scope="module")
def predictor():
    return Predictor(toy_checkpoint())


def test_every_raw_point_gets_the_class_of_its_voxel_in_order(predictor):
    cloud = toy_cloud()
    prediction = predictor(cloud)
    sample = prepare(cloud, grid_size=0.5, features=predictor.checkpoint.features)
    with torch.inference_mode():
        voxel_label = predictor.model(sample.points).argmax(dim=1)
    np.testing.assert_array_equal(prediction.label, sample.spread(voxel_label).numpy())
    assert len(prediction) == len(cloud)
    np.testing.assert_allclose(prediction.probability.sum(axis=1), 1, rtol=1e-5)


def test_labels_in_the_file_are_never_read(predictor):
    cloud = toy_cloud()
    bare = predictor(replace(cloud, label=None))
    np.testing.assert_array_equal(predictor(cloud).probability, bare.probability)


def test_twice_the_same_and_on_any_number_of_threads(predictor):
    cloud = toy_cloud(20_000)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(predictor(cloud).probability.tobytes())
    finally:
        torch.set_num_threads(threads)
    assert len(set(results)) == 1


def test_the_order_of_points_does_not_matter(predictor):
    cloud = toy_cloud(500)
    # One point a voxel, so that the same point stands for it in any order.
    first = prepare(cloud, grid_size=0.5, features=predictor.checkpoint.features)
    one_each = cloud.select(np.unique(first.inverse.numpy(), return_index=True)[1])
    shuffle = np.random.default_rng(1).permutation(len(one_each))
    expected = predictor(one_each).probability[shuffle]
    found = predictor(one_each.select(shuffle)).probability
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_non_finite_points_get_the_unlabeled_id_and_change_nothing_else(predictor):
    cloud = toy_cloud(label=False)
    rows = [0, 1500, 2999]
    coord = np.insert(cloud.coord, rows, [[np.nan] * 3, [np.inf, 0, 0], [0, -np.inf, 1]], axis=0)
    broken = PointCloud(coord=coord)
    prediction = predictor(broken)
    bad = np.flatnonzero(~broken.finite)
    assert len(prediction) == 3003
    assert prediction.label[bad].tolist() == [-1, -1, -1]
    assert prediction.raw[bad].tolist() == [LABELS.unlabeled] * 3
    np.testing.assert_array_equal(prediction.label[broken.finite], predictor(cloud).label)


@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33])
def test_clouds_of_any_size(predictor, n):
    assert len(predictor(toy_cloud(n))) == n


def test_identical_points_get_one_class(predictor):
    prediction = predictor(PointCloud(coord=np.ones((1000, 3), dtype=np.float32)))
    assert len(set(prediction.label.tolist())) == 1


def test_a_stray_point_far_away_is_handled_and_changes_no_other_label(predictor):
    cloud = toy_cloud(label=False)
    far = np.array([[5e6, 0, 0]], dtype=np.float32)
    prediction = predictor(PointCloud(coord=np.concatenate([cloud.coord, far])))
    assert len(prediction) == 3001
    np.testing.assert_array_equal(prediction.label[:-1], predictor(cloud).label)


def test_tiles_with_enough_overlap_agree_with_one_pass_nearly_everywhere(predictor):
    cloud = toy_cloud(20_000, extent=60)
    tiled = Predictor(predictor.checkpoint, tile=20.0, overlap=10.0)
    same = tiled(cloud).label == predictor(cloud).label
    assert same.mean() > 0.9


def test_views_average_and_one_view_is_the_plain_result(predictor):
    cloud = toy_cloud()
    many = Predictor(predictor.checkpoint, views=3)(cloud)
    assert many.votes.tolist() == [3] * len(cloud)
    np.testing.assert_allclose(many.probability.sum(axis=1), 1, rtol=1e-5)
    assert not np.allclose(many.probability, predictor(cloud).probability)


def test_a_missing_channel_is_named_and_can_be_filled():
    checkpoint = toy_checkpoint(fields=("height", "intensity"))
    with pytest.raises(ValueError, match="reads intensity.*--fill intensity=0"):
        Predictor(checkpoint)(toy_cloud())
    assert len(Predictor(checkpoint, fill={"intensity": 0})(toy_cloud())) == 3000
    with pytest.raises(ValueError, match="fill names colour"):
        Predictor(checkpoint, fill={"colour": 0})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tile": -1.0}, "tile must be above 0 metres, found -1"),
        ({"overlap": -0.5}, "overlap must be 0 metres or more, found -0.5"),
        ({"views": 0}, "views must be 1 or more, found 0"),
        ({"fill": {"height": np.inf}}, "fill of height must be a finite number, found inf"),
    ],
)
def test_settings_out_of_range_are_refused(predictor, settings, words):
    with pytest.raises(ValueError, match=words):
        Predictor(predictor.checkpoint, **settings)


def test_features_are_the_backbones_rows_of_every_raw_point(predictor):
    cloud = toy_cloud(400)
    coord = cloud.coord.copy()
    coord[3] = np.nan
    cloud = replace(cloud, coord=coord)
    with_features = Predictor(predictor.checkpoint, features=True)
    prediction = with_features(cloud)
    sample = prepare(cloud, grid_size=0.5, features=predictor.checkpoint.features)
    model = predictor.model
    with torch.inference_mode():
        rows = model.backbone(sample.points.feat, model.backbone.plan(sample.points)).numpy()
    np.testing.assert_array_equal(prediction.features[3], 0)
    others = np.delete(np.arange(400), 3)
    found = prediction.features[others]
    np.testing.assert_array_equal(found, rows[sample.inverse.numpy()[others]])
    logits = model.head(torch.from_numpy(found))
    np.testing.assert_array_equal(logits.argmax(dim=1).numpy(), prediction.label[others])
    assert predictor(cloud).features is None
    assert with_features(toy_cloud(0)).features.shape == (0, 8)


def test_features_of_views_are_averaged(predictor):
    cloud = toy_cloud(400)
    whole = Predictor(predictor.checkpoint, features=True, views=2)(cloud).features
    turned = replace(cloud, coord=cloud.coord * np.float32([-1, -1, 1]))
    one, other = (
        Predictor(predictor.checkpoint, features=True)(each).features for each in (cloud, turned)
    )
    np.testing.assert_allclose(whole, (one + other) / 2, atol=1e-4)


def test_progress_reaches_the_end(predictor):
    seen = []
    Predictor(predictor.checkpoint, tile=7.0)(toy_cloud(), lambda done, total: seen.append(done))
    assert seen == sorted(seen)
    assert seen[-1] == 3000
    assert len(seen) == 9


def test_entropy_is_one_for_equal_and_zero_for_sure():
    from pctx.inference.predictor import _entropy

    rows = np.array([[1 / 3] * 3, [1, 0, 0]], dtype=np.float32)
    np.testing.assert_allclose(_entropy(rows), [1, 0], atol=1e-6)
