"""Draw the pictures of docs/concepts/transforms.md: what each transform does to a simulated scan.

python tools/draw_transforms.py -o docs/pictures
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import pctx.data.transforms as tf
from pctx.data.cards import card
from pctx.data.simulator import simulate
from pctx.geometry.points import PointCloud
from pctx.vis.camera import Camera, frame
from pctx.vis.figure import DARK
from pctx.vis.palette import RGB, Ramp, ramp_colors
from pctx.vis.raster import rasterize

SIZE, GAP, HEAD = (310, 200), 6, 48
REACH = 22.0  # metres around the sensor that are shown
TEXT: RGB = (232, 234, 238)
FAINT: RGB = (160, 166, 176)
PANEL: RGB = (32, 35, 42)
GHOST: RGB = (52, 56, 64)  # where the points were
MINE: RGB = (96, 165, 250)
THEIRS: RGB = (251, 176, 72)
PAINT = MappingProxyType(
    {
        "road": (158, 160, 168),
        "ground": (148, 166, 108),
        "building": (214, 180, 148),
        "fence": (170, 140, 110),
        "vegetation": (70, 140, 72),
        "trunk": (128, 92, 64),
        "pole": (205, 205, 210),
        "traffic-sign": (240, 200, 70),
        "vehicle": (86, 132, 230),
        "person": (232, 92, 92),
    }
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """One small picture: the points after, in colour, and in grey those that were elsewhere."""

    title: str
    words: str
    after: PointCloud
    before: PointCloud | None = None
    color: np.ndarray | None = None  # (n, 3); the cloud's own where None


def main() -> None:
    """Write transforms_moves.png, _points.png, _colors.png and _mixtures.png."""
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/concepts/transforms.")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/pictures"), help="folder")
    out = parser.parse_args().out
    street, other = painted(5), painted(3)
    camera = looking_at(street.coord)
    for name, panels, columns, tones in (
        ("moves", moves(street), 4, 48),
        ("points", points(street), 4, 64),
        ("colors", colors(street), 3, 224),
        ("mixtures", mixtures(street, other), 4, 48),
    ):
        path = out / f"transforms_{name}.png"
        sheet = grid([draw(panel, camera) for panel in panels], columns)
        # An octree keeps rare colours.
        few = sheet.quantize(tones, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def painted(seed: int) -> PointCloud:
    """Scan a street, and paint each point by its class, as light as its echo."""
    cloud = simulate(np.random.default_rng(seed))
    labels = card("street").labels
    assert cloud.label is not None and cloud.intensity is not None
    number = labels.encode(cloud.label)
    color = np.array([*(PAINT[name] for name in labels.names), (120, 120, 120)])[number]
    shade = 0.6 + 0.6 * np.sqrt(cloud.intensity.clip(0, 1))[:, None]
    cloud = replace(cloud, color=(color * shade).clip(0, 255).astype(np.uint8))
    near = np.hypot(cloud.coord[:, 0], cloud.coord[:, 1]) < REACH
    cloud = cloud.select(near & (cloud.coord[:, 2] < 8))
    return replace(cloud, extra={**cloud.extra, "row": np.arange(len(cloud))})


def moves(street: PointCloud) -> list[Panel]:
    """Show the transforms that move points."""
    steps: list[tuple[str, tf.Transform]] = [
        ("Rotate(angle=0.4)", tf.Rotate(angle=0.4)),
        ("RotateBy(angles=[pi/2])", tf.RotateBy(angles=(np.pi / 2,), probability=1)),
        ("Tilt(angle=0.12)", tf.Tilt(angle=0.12)),
        ("Flip(probability=1, axes=[y])", tf.Flip(probability=1, axes=("y",))),
        ("Scale(low=0.7, high=0.7)", tf.Scale(low=0.7, high=0.7)),
        ("Stretch(low=0.6, high=1.3)", tf.Stretch(low=0.6, high=1.3)),
        ("Translate(x=6, y=6)", tf.Translate(x=6, y=6)),
        ("Center()", tf.Center()),
        ("ClipBox(±12 m, to 0.5 m)", tf.ClipBox(low=(-12, -12, -4), high=(12, 12, 0.5))),
        ("Jitter(sigma=0.15, clip=0.4)", tf.Jitter(sigma=0.15, clip=0.4)),
        ("Elastic(steps=[[1.5, 7]])", tf.Elastic(steps=((1.5, 7.0),), probability=1)),
    ]
    panels = [Panel(title="before", words="grey in the others", after=street)]
    for title, step in steps:
        after = step(street, np.random.default_rng(3))
        words = (
            f"moved {np.linalg.norm(after.coord - street.coord, axis=1).mean():.1f} m on average"
        )
        panels.append(Panel(title=title, words=words, after=after, before=street))
    return panels


def points(street: PointCloud) -> list[Panel]:
    """Show the transforms that leave points out, and the one that changes their order."""
    steps: list[tuple[str, tf.Transform]] = [
        ("Dropout(ratio=0.8)", tf.Dropout(ratio=0.8, probability=1)),
        ("CropNearest(max_points=15000)", tf.CropNearest(max_points=15_000)),
        ("CropSphere(radius=8)", tf.CropSphere(radius=8)),
        ("CropBox(±12 m, to 0.5 m)", tf.CropBox(low=(-12, -12, -4), high=(12, 12, 0.5))),
        ("Resample(num_points=4096)", tf.Resample(num_points=4096)),
        ("BeamDropout(ratio=0.4)", tf.BeamDropout(ratio=0.4, probability=1)),
        ("BeamThinning(steps=[4])", tf.BeamThinning(steps=(4,), probability=1)),
        ("RangeDropout(low=5, high=20)", tf.RangeDropout(low=5, high=20, ratio=1, probability=1)),
    ]
    panels = [
        Panel(title="before", words=f"{len(street):,} points", after=street),
    ]
    for title, step in steps:
        after = step(street, np.random.default_rng(6))
        before = street if title.startswith("Crop") else None
        panels.append(
            Panel(title=title, words=f"{len(after):,} points", after=after, before=before)
        )
    for title, cloud in (
        ("order, before", street),
        ("Shuffle()", tf.Shuffle()(street, np.random.default_rng(0))),
    ):
        color = ramp_colors(np.linspace(0, 1, len(cloud)), Ramp.ORDER)
        panels.append(Panel(title=title, words="blue first, red last", after=cloud, color=color))
    return panels


def colors(street: PointCloud) -> list[Panel]:
    """Show the transforms of colour and of intensity."""
    assert street.intensity is not None and street.color is not None
    dim = replace(street, color=(50 + street.color * 0.5).astype(np.uint8))
    steps: list[tuple[str, tf.Transform]] = [
        ("ColorContrast(blend=1)", tf.ColorContrast(probability=1, blend=1)),
        ("ColorShift(ratio=0.3)", tf.ColorShift(probability=1, ratio=0.3)),
        ("ColorJitter(sigma=0.15)", tf.ColorJitter(probability=1, sigma=0.15)),
        ("ColorDrop(factor=0.5)", tf.ColorDrop(probability=1, factor=0.5)),
        ("ColorDistortion(ratio=0.3)", tf.ColorDistortion(ratio=0.3)),
        ("ChannelDropout({color: 127})", tf.ChannelDropout(fields={"color": 127.0}, probability=1)),
    ]
    panels = [Panel(title="before", words="painted by class and echo", after=dim)]
    for title, step in steps:
        after = step(dim, np.random.default_rng(4))
        assert after.color is not None and dim.color is not None
        change = np.abs(after.color.astype(int) - dim.color.astype(int)).mean()
        panels.append(Panel(title=title, words=f"changed by {change:.0f} of 255", after=after))
    brighter = tf.IntensityShift(gain=3)(street, np.random.default_rng(1))
    for title, cloud in (("intensity, before", street), ("IntensityShift(gain=3)", brighter)):
        assert cloud.intensity is not None
        color = ramp_colors(np.sqrt(cloud.intensity.clip(0, 1)), Ramp.INTENSITY)
        words = f"mean {cloud.intensity.mean():.2f}"
        panels.append(Panel(title=title, words=words, after=cloud, color=color))
    return panels


def mixtures(street: PointCloud, other: PointCloud) -> list[Panel]:
    """Show the mixtures, each cloud in a colour of its own."""
    mine = replace(street, extra={"cloud": np.zeros(len(street), int)})
    theirs = replace(other, extra={"cloud": np.ones(len(other), int)})
    movable, ground = (10, 11, 13, 15, 18, 20, 30, 31, 32), (40, 44, 48, 49, 72)
    steps: list[tuple[str, str, tf.Mix]] = [
        ("Mix3D()", "all points of both", tf.Mix3D()),
        ("PolarMix()", "half a turn of the other", tf.PolarMix(swap=1)),
        (
            "PolarMix(classes=[10, …])",
            "objects as they are, and turned",
            tf.PolarMix(swap=0, classes=movable),
        ),
        ("LaserMix()", "by turns of both, by inclination", tf.LaserMix()),
        ("CutMix()", "a box of the other", tf.CutMix()),
        (
            "InstancePaste(classes=[10, …])",
            "objects on free ground",
            tf.InstancePaste(classes=movable, ground=ground, max_objects=12),
        ),
    ]
    panels = [
        Panel(title="the cloud", words="blue in the others", after=mine, color=shades(mine)),
        Panel(title="the other", words="orange in the others", after=theirs, color=shades(theirs)),
    ]
    for title, words, step in steps:
        after = step(mine, theirs, np.random.default_rng(7))
        panels.append(Panel(title=title, words=words, after=after, color=shades(after)))
    return panels


def shades(cloud: PointCloud) -> np.ndarray:
    """Colour each cloud of a mixture, lighter where the echo is strong."""
    assert cloud.intensity is not None
    color = np.array([MINE, THEIRS])[cloud.extra["cloud"]]
    shade = 0.6 + 0.5 * np.sqrt(cloud.intensity.clip(0, 1))[:, None]
    return (color * shade).clip(0, 255).astype(np.uint8)


def looking_at(coord: np.ndarray) -> Camera:
    """Look at the scan from a little farther off than usual: moved points are seen too."""
    near = frame(coord, view="street", aspect=SIZE[0] / SIZE[1])
    reach = 1.1 * near.reach
    return replace(near, eye=near.target - reach * near.axes[2], reach=reach)


def draw(panel: Panel, camera: Camera) -> Image.Image:
    """Draw a panel with its two lines."""
    color = panel.after.color if panel.color is None else panel.color
    assert color is not None
    coord = panel.after.coord
    if panel.before is not None:
        gone = elsewhere(panel.before, panel.after)
        coord = np.concatenate([coord, gone])
        color = np.concatenate([color, np.full((len(gone), 3), GHOST, dtype=np.uint8)])
    picture = rasterize(coord, color, camera, SIZE, background=DARK)
    sheet = Image.new("RGB", (SIZE[0], SIZE[1] + HEAD), PANEL)
    sheet.paste(Image.fromarray(picture), (0, HEAD))
    pen = ImageDraw.Draw(sheet)
    pen.text((10, 6), panel.title, TEXT, ImageFont.load_default(17))
    pen.text((10, 27), panel.words, FAINT, ImageFont.load_default(14))
    return sheet


def elsewhere(before: PointCloud, after: PointCloud) -> np.ndarray:
    """Give the places that points left, or where those were that are gone."""
    left = np.ones(len(before), dtype=bool)
    row = after.extra["row"]
    left[row] = np.linalg.norm(before.coord[row] - after.coord, axis=1) > 0.1
    return before.coord[left]


def grid(panels: Sequence[Image.Image], columns: int) -> Image.Image:
    """Put panels into rows."""
    wide, high = panels[0].width + GAP, panels[0].height + GAP
    rows = -(-len(panels) // columns)
    sheet = Image.new("RGB", (columns * wide - GAP, rows * high - GAP), PANEL)
    for i, panel in enumerate(panels):
        sheet.paste(panel, (i % columns * wide, i // columns * high))
    return sheet


if __name__ == "__main__":
    main()
