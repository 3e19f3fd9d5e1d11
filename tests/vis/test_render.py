from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pctx
from pctx.data.labels import LabelSet
from pctx.geometry.points import PointCloud
from pctx.vis import figure
from pctx.vis.camera import VIEWS, frame
from pctx.vis.fields import make_scene
from pctx.vis.figure import DARK, draw
from pctx.vis.palette import Ramp
from pctx.vis.raster import rasterize, spacing
from pctx.vis.render import draw_row, render, render_row, render_scenes
from pctx.vis.scene import ColorScale, Scene, value_scene

SMALL = (320, 240)


def lattice(n: int, z: float = 0.0) -> np.ndarray:
    axis = np.linspace(-5, 5, n)
    x, y = np.meshgrid(axis, axis)
    return np.stack([x, y, np.full_like(x, z)], axis=-1).reshape(-1, 3).astype(np.float32)


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def picture(coord: np.ndarray, color: np.ndarray, **options: float) -> np.ndarray:
    camera = frame(coord, view="top", aspect=4 / 3)
    return rasterize(coord, color, camera, SMALL, background=DARK, **options)


def test_exact_palette_colours_appear_on_a_flat_scene(labels):
    coord = lattice(40)
    label = np.repeat([40, 10, 70, 81], 400)
    scene = make_scene(PointCloud(coord=coord, label=label), labels=labels)
    seen = np.asarray(draw(scene, size=(640, 480), view="top", light=0))
    counts = {c: int((seen == c).all(axis=-1).sum()) for c in labels.colors}
    assert min(counts.values()) > 3000  # far more than the swatches of the legend


def test_lighting_leaves_a_flat_scene_as_it_is():
    coord = lattice(40)
    color = np.full((1600, 3), (200, 100, 50), np.uint8)
    assert (picture(coord, color) == picture(coord, color, light=0)).all()


def test_lighting_darkens_what_lies_behind():
    coord = np.concatenate([lattice(80), 0.3 * lattice(80, 5) + [0, 0, 3]]).astype(np.float32)
    color = np.full((12800, 3), 200, np.uint8)
    plain, lit = picture(coord, color, light=0), picture(coord, color)
    assert (lit <= plain).all()
    assert (lit[plain == 200] < 180).any()


def test_a_nearer_point_hides_a_farther_one():
    low, high = lattice(80), lattice(80, 3.0)
    color = np.repeat(np.array([[255, 0, 0], [0, 255, 0]], np.uint8), 6400, axis=0)
    for coord, colors in (
        (np.concatenate([low, high]), color),
        (np.concatenate([high, low]), color[::-1]),
    ):
        seen = picture(coord, colors, light=0)
        middle = seen[80:160, 120:200].reshape(-1, 3)
        assert (middle == (0, 255, 0)).all()


def test_near_surfaces_have_no_holes():
    rng = np.random.default_rng(0)
    coord = rng.uniform((-5, -5, 0), (5, 5, 0), (12000, 3)).astype(np.float32)
    seen = picture(coord, np.full((12000, 3), 255, np.uint8), light=0)
    assert (seen[60:180, 100:220, 0] > 200).mean() > 0.95


def test_the_order_of_the_points_does_not_matter():
    rng = np.random.default_rng(0)
    coord = rng.normal(size=(3000, 3)).astype(np.float32)
    color = rng.integers(0, 255, (3000, 3)).astype(np.uint8)
    camera, order = frame(coord), rng.permutation(3000)
    a = rasterize(coord, color, camera, SMALL, background=DARK)
    b = rasterize(coord[order], color[order], camera, SMALL, background=DARK)
    assert (a == b).all()


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("view", VIEWS)
def test_clouds_of_a_few_points_are_drawn(n, view):
    scene = make_scene(PointCloud(coord=lattice(2)[:n]))
    seen = np.asarray(draw(scene, size=SMALL, view=view))
    blank = np.asarray(draw(make_scene(PointCloud(coord=lattice(2)[:0])), size=SMALL))
    assert seen.shape == (240, 320, 3)
    assert (seen != blank).any() or n == 0


def test_points_all_at_one_place_are_drawn():
    coord = np.full((1000, 3), 5, np.float32)
    seen = np.asarray(draw(make_scene(PointCloud(coord=coord), color="height"), size=SMALL))
    assert (seen[100:200, 20:200] != DARK).any()


def test_far_outliers_do_not_shrink_the_scene(street):
    coord = street.coord.copy()
    coord[:4] = [[1e6, 0, 0], [0, -1e6, 0], [0, 0, 1e7], [-1e6, 1e6, 0]]
    near, far = frame(street.coord), frame(coord)
    assert 0.8 < far.reach / near.reach < 1.25


def test_misses_piled_up_at_the_sensor_do_not_change_the_frame(street):
    piled = np.concatenate([street.coord, np.zeros((2000, 3), np.float32)])
    assert 0.8 < frame(piled).reach / frame(street.coord).reach < 1.25


def test_survey_and_local_coordinates_give_the_same_picture(street):
    there = PointCloud.from_xyz(
        street.coord + np.array([650000.0, 6300000.0, 0.0]), label=street.label
    )
    here = np.asarray(draw(make_scene(street), size=SMALL)).astype(int)
    seen = np.asarray(draw(make_scene(there), size=SMALL)).astype(int)
    # A rounded coordinate may move a disc's rim by one subpixel.
    assert (np.abs(here - seen).max(axis=-1) > 0).mean() < 0.01


def test_points_without_a_position_are_drawn_around(street, tmp_path):
    coord = street.coord.copy()
    coord[::7] = np.nan
    render(replace(street, coord=coord), None, tmp_path / "a.png", size=SMALL)
    assert size_of(tmp_path / "a.png") == SMALL


def test_all_points_lie_in_the_frame_of_an_object():
    rng = np.random.default_rng(0)
    coord = rng.normal(size=(2000, 3)).astype(np.float32)
    right, up, depth = frame(coord, view="object", aspect=2.0).project(coord)
    assert (np.abs(right) <= 2).all() and (np.abs(up) <= 1).all() and (depth > 0).all()


def test_the_top_view_has_north_up_and_east_right():
    right, up, _ = frame(lattice(10), view="top").project(
        np.array([[1, 0, 0], [0, 1, 0]], np.float32)
    )
    assert right[0] > 0.05 and abs(right[1]) < 0.01
    assert up[1] > 0.05 and abs(up[0]) < 0.01


def test_an_unknown_view_lists_the_known_ones():
    with pytest.raises(ValueError, match="auto, top, street, oblique"):
        frame(lattice(3), view="side")


def test_spacing_is_the_distance_between_lattice_points():
    apart = spacing(lattice(101))  # 0.1 m
    assert 0.08 < np.median(apart) < 0.13


def test_the_same_cloud_gives_the_same_bytes(street, labels, tmp_path):
    for name in ("a.png", "b.png"):
        render(street, None, tmp_path / name, labels=labels, size=SMALL, title="street")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_render_is_public_and_returns_the_path(street, tmp_path):
    assert pctx.render(street, None, tmp_path / "a.png", size=SMALL) == tmp_path / "a.png"


def test_nothing_is_overwritten_unasked_and_no_half_file_stays(street, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"a\.png"):
        render(street, None, path, size=SMALL)
    assert path.read_bytes() == b"mine"
    render(street, None, path, size=SMALL, overwrite=True)
    assert size_of(path) == SMALL
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("name", ["a.txt", "a", "a.gif"])
def test_a_name_that_is_no_picture_is_refused(name, street, tmp_path):
    with pytest.raises(ValueError, match=r"\.png"):
        render(street, None, tmp_path / name)


def test_a_size_too_small_is_refused(street, tmp_path):
    with pytest.raises(ValueError, match="64 to 8192 pixels a side, found 8 x 8"):
        render(street, None, tmp_path / "a.png", size=(8, 8))


def test_a_row_shows_the_same_points_at_the_same_place_whatever_the_legend(street, labels):
    cars = replace(street, label=np.full(400, 10))
    scenes = [make_scene(cars, labels=labels), make_scene(cars, color="height")]
    scenes = [replace(scene, color=np.full((400, 3), 200, np.uint8)) for scene in scenes]
    row = np.asarray(draw_row(scenes, size=SMALL))
    assert row.shape == (240, 644, 3)
    assert (row[50:150, :320] == row[50:150, 324:]).all()


def test_scenes_of_other_clouds_stand_in_a_grid_of_the_size_asked_for(street, tmp_path):
    other = street.select(slice(50))
    scenes = [make_scene(street), make_scene(other), make_scene(street, color="height")]
    path = render_scenes(scenes, tmp_path / "grid.png", size=(640, 480))
    assert size_of(path) == (640, 480)
    assert size_of(render_row(scenes, tmp_path / "row.png", size=SMALL)) == (968, 240)
    with pytest.raises(ValueError, match="at least one scene"):
        render_row([], tmp_path / "none.png")


def test_the_legend_shows_the_colours_of_the_classes_present(labels):
    coord = np.zeros((1, 3), np.float32)
    scene = make_scene(PointCloud(coord=coord, label=np.array([70])), labels=labels)
    seen = np.asarray(draw(scene, size=(640, 480)))[:, 400:]
    has = [(seen == color).all(axis=-1).any() for color in labels.colors]
    assert has == [False, False, True, False]


def test_a_scale_shows_its_words_at_its_ends(street):
    def drawn(ends):
        scale = ColorScale(Ramp.ORDER, 0.0, 1.0, "", ends)
        scene = value_scene(street, np.linspace(0, 1, 400), scale=scale)
        return np.asarray(draw(scene, size=(640, 480), strip=80)).astype(int)[400:]

    bare, left, right = drawn(("", "")), drawn(("start", "")), drawn(("", "end"))
    assert np.flatnonzero((left != bare).any(axis=(0, 2))).max() < 200
    assert np.flatnonzero((right != bare).any(axis=(0, 2))).min() > 200


def test_long_names_and_long_legends_fit(street):
    n = 60
    many = LabelSet(
        names=tuple(f"a very long name of a class, number {i}" for i in range(n)),
        colors=tuple((4 * i, 255 - 4 * i, 128) for i in range(n)),
        raw=tuple((i,) for i in range(n)),
    )
    scene = make_scene(replace(street, label=np.arange(400) % n), labels=many, title="x" * 500)
    seen = np.asarray(draw(scene, size=(800, 600)))
    assert all((seen[:, 480:] == color).all(axis=-1).any() for color in many.colors)


def test_a_light_background_has_dark_words(street):
    blank = Scene(coord=street.coord[:0], color=np.zeros((0, 3), np.uint8), title="words")
    seen = np.asarray(draw(blank, size=SMALL, background=(244, 245, 247)))
    assert seen[:20].min() < 80


def test_real_scans_are_told_from_tiles(real_data):
    scan = "open-mmlab__mmdetection3d_HEAD/demo/data/kitti/000008.bin"
    coord = np.fromfile(real_data / scan, np.float32).reshape(-1, 4)[:, :3]
    assert np.degrees(np.arcsin(-frame(coord).axes[2, 2])) == pytest.approx(36)
    rng = np.random.default_rng(0)
    tile = rng.uniform((-50, -50, 0), (50, 50, 8), (5000, 3)).astype(np.float32)
    assert np.degrees(np.arcsin(-frame(tile).axes[2, 2])) == pytest.approx(42)


@pytest.mark.parametrize("width", [0.3, 7.0, 90.0, 4000.0, 80_000.0])
def test_the_scale_bar_is_as_long_as_it_says(width):
    coord = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 3)).astype(np.float32) * width
    camera, size, said = frame(coord, view="top", aspect=4 / 3), (800, 600), {}

    class Pen:
        def rounded_rectangle(self, box, radius, fill):
            said["box"] = box

        def line(self, ends, fill, width):
            said.setdefault("bar", ends)

        def text(self, place, word, *_, **__):
            said["word"] = word

    figure._scale_bar(Pen(), camera, size, 0, figure._ink(size, figure.DARK))
    number, unit = said["word"].split()
    metres = float(number) * {"m": 1, "km": 1000}[unit]
    ends = camera.target + np.outer([-0.5, 0.5], camera.axes[0]) * metres
    right, *_ = camera.project(ends.astype(np.float32))
    left, _, stop, bottom = said["bar"]
    assert stop - left == pytest.approx((right[1] - right[0]) * size[1] / 2, rel=1e-3)
    assert 0.04 * size[0] < stop - left < 0.17 * size[0]
    assert said["box"][0] < left < stop < said["box"][2] and bottom < said["box"][3] <= size[1]
