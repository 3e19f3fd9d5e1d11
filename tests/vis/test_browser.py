"""The page in a browser: what Chromium draws and says, with hands given in the page's address."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis.fields import make_scene
from pctx.vis.html import write_html

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"),
    *("--disable-background-networking", "--window-size=1280,800", "--hide-scrollbars"),
    *("--force-device-scale-factor=1", "--virtual-time-budget=3000"),
)
LABELS = LabelSet(
    names=("left", "right", "never", "post"),
    colors=((230, 60, 20), (20, 120, 230), (1, 2, 3), (250, 220, 40)),
    raw=((1,), (2,), (3,), (4,)),
)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="pages are looked at with Chromium"),
    pytest.mark.slow,
]


def tiles() -> PointCloud:
    """Two squares side by side on the ground, and a third over their middle."""
    x, y = np.meshgrid(np.linspace(-10, 10, 200), np.linspace(-5, 5, 100))
    flat = np.stack([x, y, np.zeros_like(x)], axis=-1).reshape(-1, 3)
    over = flat[np.abs(flat).max(axis=1) < 2] + (0, 0, 3)
    label = np.concatenate([np.where(flat[:, 0] < 0, 1, 2), np.full(len(over), 4)])
    survey = np.array([650000.0, 6300000.0, 100.0])
    return PointCloud.from_xyz(np.concatenate([flat, over]) + survey, label=label)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    cloud = tiles()
    scenes = [
        make_scene(cloud, color=color, labels=LABELS, title="tiles")
        for color in ("label", "height")
    ]
    return write_html(scenes, tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture(scope="module")
def page_of_chances(tmp_path_factory):
    """The tiles; over their middle a class is 70 to 30, and elsewhere 30 to 70."""
    cloud = tiles()
    share = np.zeros((len(cloud), 4), np.float32)
    over = cloud.label == 4
    share[:, 3], share[:, 1] = np.where(over, 0.7, 0.3), np.where(over, 0.3, 0.7)
    prediction = Prediction(label=share.argmax(axis=1), labels=LABELS, probability=share)
    scenes = [make_scene(cloud, prediction, color=color) for color in ("height", "prediction")]
    return write_html(scenes, tmp_path_factory.mktemp("page") / "chances.html")


def browse(page, tmp_path, hands: str, *flags: str) -> str:
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    address = f"{page.as_uri()}#{hands}"
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, profile, *flags, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def seen(page, tmp_path, hands: str = "from=top&zoom=0.6") -> np.ndarray:
    path = tmp_path / "shot.png"
    browse(page, tmp_path, hands, f"--screenshot={path}")
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def box(shot: np.ndarray, color) -> tuple[float, float, float, float]:
    """Give left, right, top and bottom of what has a colour, beside the panels."""
    hit = np.abs(shot - np.array(color)).max(axis=-1) <= 2
    hit[:260, 940:] = False
    rows, columns = np.nonzero(hit)
    assert len(rows) > 500, color
    return columns.min(), columns.max(), rows.min(), rows.max()


def test_a_known_scene_lies_where_it_should_in_its_colours(page, tmp_path):
    shot = seen(page, tmp_path)
    left, right, post = (box(shot, LABELS.colors[i]) for i in (0, 1, 3))
    assert (shot[300:700, 100:900] == (24, 27, 33)).all(axis=-1).any()  # the ground
    # From above, north up: 20 x 10 m, the left half left, the post over the middle.
    width, height = right[1] - left[0], left[3] - left[2]
    assert width / height == pytest.approx(2, rel=0.05)
    assert left[1] == pytest.approx(right[0], abs=4)
    assert left[1] == pytest.approx((left[0] + right[1]) / 2, rel=0.02)
    assert (post[0] + post[1]) / 2 == pytest.approx((left[0] + right[1]) / 2, abs=6)
    metre = width / 20
    assert post[1] - post[0] == pytest.approx(4 * metre, rel=0.2)  # it is nearer
    # The legend has the classes that are there.
    for i, there in enumerate((True, True, False, True)):
        assert (shot[:400, 960:] == LABELS.colors[i]).all(axis=-1).any() == there


def test_hidden_classes_cut_heights_and_a_light_ground_are_seen(page, tmp_path):
    shot = seen(page, tmp_path, "from=top&zoom=0.6&hide=left&ceiling=0.5&ground=light")
    hits = [(np.abs(shot[:, :960] - np.array(c)).max(axis=-1) <= 2).sum() for c in LABELS.colors]
    assert hits[0] == hits[3] == 0 < 500 < hits[1]
    assert (shot[500, 100] == (244, 245, 247)).all()


def test_a_click_tells_all_about_a_point_and_nothing_goes_wrong(page, tmp_path):
    text = browse(page, tmp_path, "layer=height&from=top&point=50%,50%", "--dump-dom")
    assert "data-error" not in text
    (said,) = re.findall(r'<div id="said"[^>]*>([^<]*)</div>', text)
    lines = dict(line.split(" ", 1) for line in said.split("\n"))
    assert lines["label:"] == "post" and lines["height:"] == "103"
    east, north, up = re.fullmatch(r"([\d.]+)  y ([\d.]+)  z ([\d.]+)", lines["x"]).groups()
    assert abs(float(east) - 650000) <= 2 and abs(float(north) - 6300000) <= 2
    assert float(up) == pytest.approx(103, abs=0.01)
    row = int(lines["point"].replace(",", ""))
    assert (tiles().xyz[row] - (float(east), float(north), float(up))) == pytest.approx(0, abs=0.01)
    (mark,) = re.findall(r'id="mark" style="left: ([\d.]+)px', text)
    assert float(mark) == pytest.approx(640, abs=7)  # where the click was
    pressed = re.findall(r'aria-pressed="true">([^<]*)<', text)
    assert "height" in pressed and "label" not in pressed


def test_a_click_tells_how_likely_the_classes_are(page_of_chances, tmp_path):
    text = browse(page_of_chances, tmp_path, "from=top&point=50%,50%", "--dump-dom")
    assert "data-error" not in text
    (told,) = re.findall(r'<div id="chances">(.*?)</div>', text)
    assert re.findall(r">([^<>]+)</(?:b|span)>", told) == ["post", "70 %", "right", "30 %"]
    assert [round(float(w)) for w in re.findall(r"width: ([\d.]+)%", told)] == [70, 30]


@pytest.mark.parametrize("n", [0, 1])
def test_pages_of_hardly_any_points_open(n, tmp_path):
    cloud = PointCloud(coord=np.zeros((n, 3), np.float32))
    page = write_html(make_scene(cloud), tmp_path / "few.html")
    text = browse(page, tmp_path, "from=top&point=50%,50%", "--dump-dom")
    assert "data-error" not in text
    assert ("point 0\nx 0.00" in text) == (n == 1)
    assert f"{n} point" in text
