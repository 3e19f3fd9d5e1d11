from dataclasses import replace

import numpy as np
import pytest
import torch

from pctx.data.prepare import prepare
from pctx.data.tiling import Limits
from pctx.geometry.points import PointCloud
from pctx.inference.predictor import Predictor
from pctx.inference.views import CHANGES, View
from tests.toy import LABELS, toy_checkpoint, toy_cloud


@pytest.fixture(scope="module")
def predictor():
    return Predictor(toy_checkpoint())


@pytest.mark.parametrize("grid_size", [0.5, 0.3])
def test_every_raw_point_gets_the_class_of_its_voxel_in_order(grid_size):
    cloud = toy_cloud()
    cloud = replace(cloud, coord=cloud.coord + np.float32([7, 3, 0]))
    predictor = Predictor(replace(toy_checkpoint(), grid_size=grid_size))
    prediction = predictor(cloud)
    sample = prepare(cloud, grid_size=grid_size, features=predictor.checkpoint.features)
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


@pytest.mark.parametrize("place", [(5e6, 0, 0), (-50_000, 0, 0), (0, 0, -9000), (5e4, 5e4, 5e4)])
def test_a_stray_point_has_no_class_and_changes_no_other(place, caplog):
    cloud = toy_cloud(label=False)
    predictor = Predictor(toy_checkpoint(fields=("coord", "height")))
    whole = np.insert(cloud.coord, 1000, place, axis=0)
    prediction = predictor(PointCloud(coord=whole))
    assert prediction.label[1000] == -1
    others = np.delete(prediction.probability, 1000, axis=0)
    np.testing.assert_array_equal(others, predictor(cloud).probability)
    assert "1 stray point" in caplog.text


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


def test_the_identity_view_is_the_plain_pass_bit_for_bit(predictor):
    cloud = toy_cloud(20_000, extent=60)
    plain = predictor(cloud)
    one = Predictor(predictor.checkpoint, views=1, vary=CHANGES)(cloud)
    assert one.probability.tobytes() == plain.probability.tobytes()
    assert not one.variance.any()
    assert View().apply(cloud) is cloud
    # And as the first of many: three equal views are the plain result.
    thrice = Predictor(predictor.checkpoint)
    thrice.views = (View(), View(), View())
    np.testing.assert_allclose(thrice(cloud).probability, plain.probability, atol=1e-7)


def test_a_shuffled_view_plans_otherwise_and_always_the_same():
    checkpoint = toy_checkpoint()
    arguments = {**checkpoint.arguments, "shuffle_curves": True}
    shuffled = Predictor(replace(checkpoint, arguments=arguments))
    found = []
    for seed in (None, 1, 1):
        shuffled.views = (View(seed=seed),)
        found.append(shuffled(toy_cloud()).probability)
    assert not np.allclose(found[0], found[1], atol=1e-3)
    np.testing.assert_array_equal(found[1], found[2])


def test_variance_is_that_of_the_views_summed_over_the_classes(predictor):
    cloud = toy_cloud()
    many = Predictor(predictor.checkpoint, views=4)
    each = []
    for view in many.views:
        alone = Predictor(predictor.checkpoint)
        alone.views = (view,)
        each.append(alone(cloud).probability.astype(np.float64))
    expected = np.var(each, axis=0).sum(axis=1)
    assert expected.max() > 1e-3
    np.testing.assert_allclose(many(cloud).variance, expected, atol=1e-6)


def test_a_vote_of_one_voxel_is_that_of_the_nearest_and_many_smooth(predictor):
    cloud = toy_cloud()
    plain = predictor(cloud)
    sample = prepare(cloud, grid_size=0.5, features=predictor.checkpoint.features)
    with torch.inference_mode():
        voxels = predictor.model(sample.points).softmax(dim=1).numpy()
    distance = np.linalg.norm(cloud.coord[:, None] - sample.points.coord.numpy()[None], axis=2)
    nearest = distance.argsort(axis=1)[:, :5]
    one, five = (Predictor(predictor.checkpoint, vote=k)(cloud) for k in (1, 5))
    np.testing.assert_allclose(one.probability, voxels[nearest[:, 0]], atol=1e-6)
    np.testing.assert_allclose(five.probability, voxels[nearest].mean(axis=1), atol=1e-6)
    assert (one.label == plain.label).mean() > 0.8
    assert len(Predictor(predictor.checkpoint, vote=10)(toy_cloud(3))) == 3


def test_temperature_divides_the_logits(predictor):
    cloud = toy_cloud(500)
    warm = Predictor(replace(predictor.checkpoint, temperature=3.0))(cloud)
    logits = np.log(predictor(cloud).probability)
    expected = np.exp(logits / 3)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(warm.probability, expected, atol=1e-5)


def test_below_the_least_confidence_there_is_no_class(predictor):
    cloud = toy_cloud()
    plain = predictor(cloud)
    least = float(np.median(plain.confidence))
    careful = Predictor(predictor.checkpoint, min_confidence=least)(cloud)
    unsure = plain.confidence < np.float32(least)
    assert 0 < unsure.sum() < len(cloud)
    np.testing.assert_array_equal(careful.label, np.where(unsure, -1, plain.label))
    assert set(careful.raw[unsure].tolist()) == {LABELS.unlabeled}


def test_skipped_codes_keep_theirs_and_change_nothing_else(predictor):
    cloud = toy_cloud()
    noise = toy_cloud(50, seed=1)
    both = PointCloud(
        coord=np.concatenate([cloud.coord, noise.coord]),
        label=np.concatenate([cloud.label, np.full(50, 7)]),
    )
    prediction = Predictor(predictor.checkpoint, skip=(7,))(both)
    assert prediction.label[-50:].tolist() == [-1] * 50
    assert prediction.raw[-50:].tolist() == [7] * 50
    np.testing.assert_array_equal(prediction.label[:-50], predictor(cloud).label)


def test_margin_and_confidence_are_of_the_likeliest_classes(predictor):
    prediction = predictor(toy_cloud())
    ranked = np.sort(prediction.probability, axis=1)
    np.testing.assert_array_equal(prediction.confidence, ranked[:, -1])
    np.testing.assert_array_equal(prediction.margin, ranked[:, -1] - ranked[:, -2])
    with pytest.raises(ValueError, match="'doubt' is no measure"):
        prediction.column("doubt")


def test_results_go_over_from_tile_to_tile_without_a_step(predictor):
    """The blended result is that of either tile where its neighbour's say ends."""
    cloud = toy_cloud(20_000, extent=40)
    blended = Predictor(predictor.checkpoint, tile=20.0, overlap=8.0)(cloud).probability
    hard = Predictor(predictor.checkpoint, tile=20.0, overlap=8.0)
    scene = hard.scene(cloud, np.arange(len(cloud)))
    alone = {}
    for box in scene.boxes:
        result = next(hard.label_boxes(scene, [box]))
        coord = cloud.coord[result.points]
        assert box.widened(4).holds(coord).all()
        outside = ~box.holds(coord)
        assert outside.any()
        assert (result.weight[outside] <= 0.5).all()
        alone[tuple(box.low[:2])] = result
    assert len(alone) == 4
    whole = np.zeros_like(blended), np.zeros((len(cloud), 1), np.float32)
    for result in alone.values():
        whole[0][result.points] += result.weight[:, None] * result.probability
        whole[1][result.points] += result.weight[:, None]
    away = ((cloud.coord[:, :2] > 4) & (cloud.coord[:, :2] < 36)).all(axis=1)
    np.testing.assert_allclose(whole[1][away], 1, atol=1e-5)
    np.testing.assert_allclose(blended, whole[0] / whole[1], atol=1e-6)


def test_a_tile_that_memory_does_not_hold_is_halved(predictor, monkeypatch):
    cloud = toy_cloud(20_000, extent=60)
    expected = Predictor(predictor.checkpoint)(cloud)
    careful = Predictor(predictor.checkpoint)
    features, sizes = careful.model.features, []

    def too_large(points, hierarchy):
        sizes.append(len(points))
        if len(points) > 6_000:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return features(points, hierarchy)

    monkeypatch.setattr(careful.model, "features", too_large)
    careful.overlap = 5.0
    prediction = careful(cloud)
    assert max(sizes) > 6_000
    assert (prediction.label >= 0).all()
    assert (prediction.label == expected.label).mean() > 0.9

    def always(points, hierarchy):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(careful.model, "features", always)
    with pytest.raises(ValueError, match="memory ran out with the smallest tile"):
        careful(toy_cloud(100, extent=3))


def test_a_full_voxel_costs_no_more_passes_and_no_more_voxels(predictor, monkeypatch):
    spread = toy_cloud(5000, extent=40)
    full = replace(
        spread,
        coord=np.concatenate(
            [spread.coord[:2500], spread.coord[:1] + np.zeros((2500, 1), np.float32)]
        ),
    )
    watched = Predictor(predictor.checkpoint)
    features, sizes = watched.model.features, []

    def counted(points, hierarchy):
        sizes.append(len(points))
        return features(points, hierarchy)

    monkeypatch.setattr(watched.model, "features", counted)
    watched(full)
    watched(spread)
    assert len(sizes) == 2
    assert sizes[0] < sizes[1]


def test_other_failures_are_not_taken_for_lack_of_memory(predictor, monkeypatch):
    broken = Predictor(predictor.checkpoint)

    def fail(points, hierarchy):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(broken.model, "features", fail)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        broken(toy_cloud(100))


@pytest.mark.parametrize("fields", [("height", "shape"), ("coord",)])
def test_features_of_tiles_are_those_of_the_whole_cloud(fields):
    """With no network in between: what a tile's core reads does not depend on the tile."""
    checkpoint = toy_checkpoint(fields=fields)
    cloud = toy_cloud(20_000, extent=60)
    expected = checkpoint.features.extract(cloud)
    tiled = Predictor(checkpoint, tile=15.0, overlap=0.0)
    scene = tiled.scene(cloud, np.arange(len(cloud)))
    for box in scene.boxes:
        part, rows = scene.load(box.widened(checkpoint.features.reach))
        feat = checkpoint.features.extract(part, middle=scene.middle)
        core = box.holds(part.coord)
        np.testing.assert_allclose(feat[core], expected[rows[core]], atol=1e-4)


def test_a_shift_of_the_whole_cloud_changes_no_label(predictor):
    """Of a survey in whole centimetres, where many points lie in faces of voxels."""
    cloud = toy_cloud(20_000, extent=40)
    xyz = np.round(cloud.xyz, 2)
    near, far = (PointCloud.from_xyz(xyz + shift) for shift in (0, np.array([1000, 2000, 50])))
    for grid_size, views in ((0.4, 1), (0.3, 1), (0.3, 2)):  # 0.3 divides none of the three
        checkpoint = replace(predictor.checkpoint, grid_size=grid_size)
        finer = Predictor(checkpoint, views=views, vary=("rotate",))
        assert (np.round(xyz * 100) % (100 * grid_size) == 0).any(axis=1).mean() > 0.05
        assert (finer(far).label == finer(near).label).mean() >= 0.999


def test_a_shift_of_a_cloud_cut_into_tiles_changes_no_label(predictor, monkeypatch):
    xyz = np.round(toy_cloud(20_000, extent=40).xyz, 2)
    cut = Predictor(replace(predictor.checkpoint, grid_size=0.3), overlap=2.0)
    few = Limits(voxels=8000, points=8000, extent=1e6)
    monkeypatch.setattr(Predictor, "limits", few)
    near, far = (PointCloud.from_xyz(xyz + shift) for shift in (0, np.array([1000, 2000, 50])))
    assert len(cut.scene(near, np.arange(20_000)).boxes) > 2
    assert (cut(far).label == cut(near).label).mean() >= 0.999


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
        ({"tile": -1.0}, "tile must be above 0 metres, at most 1e.07, found -1"),
        ({"tile": float("inf")}, "tile must be above 0 metres, at most 1e.07, found inf"),
        ({"overlap": -0.5}, "overlap must be 0 to 1e.07 metres, found -0.5"),
        ({"views": 0}, "views must be from 1 to 1000, found 0"),
        ({"views": 2, "vary": ("turn",)}, "views change rotate, .*, found 'turn'"),
        ({"vote": 0}, "vote must be 1 voxel or more, found 0"),
        ({"min_confidence": 1.5}, "min-confidence must be from 0 to 1, found 1.5"),
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
    views = {"views": 2, "vary": ("rotate",)}
    whole = Predictor(predictor.checkpoint, features=True, **views)(cloud).features
    turned = replace(cloud, coord=cloud.coord * np.float32([-1, -1, 1]))
    one, other = (
        Predictor(predictor.checkpoint, features=True)(each).features for each in (cloud, turned)
    )
    np.testing.assert_allclose(whole, (one + other) / 2, atol=1e-4)


def test_progress_reaches_the_end(predictor):
    seen = []
    Predictor(predictor.checkpoint, tile=7.0)(toy_cloud(), lambda done, total: seen.append(done))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 3000)
    assert len(seen) == 10


def test_entropy_is_one_for_equal_and_zero_for_sure():
    from pctx.inference.predictor import _entropy

    rows = np.array([[1 / 3] * 3, [1, 0, 0]], dtype=np.float32)
    np.testing.assert_allclose(_entropy(rows), [1, 0], atol=1e-6)
