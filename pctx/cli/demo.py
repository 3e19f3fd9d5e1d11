"""pctx demo: the whole job on simulated scans, with nothing to download."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pctx.data.dataset import ScanDataset
    from pctx.inference.predictor import Predictor

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx demo

pctx demo --out demo
"""


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder for all that is made; by default runs/demo/….")
    ] = None,
) -> None:
    """Simulate street scans, train a small PTv3, score it on unseen scans, label one, draw it.

    It takes some six minutes on two cores, and needs no data and no GPU.
    """
    from hydra.utils import instantiate

    from pctx.cli.config import compose
    from pctx.cli.evaluate import score_split
    from pctx.cli.train import fit
    from pctx.inference.predictor import Predictor

    folder = out or Path("runs") / "demo" / time.strftime("%Y-%m-%d_%H-%M-%S")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: not empty; choose another folder with --out")
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    log.info("1/3  training a small PTv3 on simulated street scans (a few minutes on a CPU)")
    overrides = ["experiment=demo", "name=demo", f"data.dataset.cache='{folder / 'scans'}'"]
    config = compose("train", overrides)
    fit(config, folder)
    log.info("2/3  scoring it on simulated scans that it never saw")
    dataset = instantiate(config.data.dataset)
    predictor = Predictor(folder / "model.pt")
    scores = score_split(dataset, predictor, "test", folder).scores
    log.info("3/3  labelling one of them, and drawing it")
    made = _label_and_draw(dataset, predictor, folder)
    minutes = (time.monotonic() - start) / 60
    log.info("done in %.1f minutes: mIoU %.3f on unseen scans", minutes, scores.miou)
    for path, what in made:
        log.info("  %s  %s", path, what)
    log.info("next:  pctx predict %s 000000.bin -o 000000.label   a car scan", folder / "model.pt")
    log.info("       pctx card FOLDER   a model of your own, from a folder of labelled scans")


def _label_and_draw(
    dataset: ScanDataset, predictor: Predictor, folder: Path
) -> list[tuple[Path, str]]:
    """Write a scan, its prediction and their pictures; give the files and what they are."""
    from dataclasses import replace

    from pctx.data.io.formats import write
    from pctx.vis.fields import make_scene
    from pctx.vis.html import write_html
    from pctx.vis.render import render, render_row

    cloud = dataset.read(dataset.scans("test")[0])
    labels = dataset.card.labels
    bare = replace(cloud, label=None)
    prediction = predictor(bare)
    write(folder / "scan.laz", bare)
    write(folder / "labelled.laz", bare, prediction=prediction, source=folder / "scan.laz")
    write(folder / "labelled.ply", bare, prediction=prediction)
    scenes = [
        make_scene(cloud, prediction, color=color, labels=labels, title=title)
        for color, title in (("label", "truth"), ("prediction", "prediction"), ("error", "error"))
    ]
    render_row(scenes, folder / "comparison.png")
    render(bare, prediction, folder / "prediction.png", title="an unseen simulated scan")
    write_html(scenes, folder / "view.html")
    return [
        (folder / "model.pt", "the model"),
        (folder / "labelled.laz", "the scan with predicted classes; also labelled.ply"),
        (folder / "comparison.png", "truth, prediction and error side by side"),
        (folder / "prediction.png", "the prediction"),
        (folder / "view.html", "the same to turn in a browser"),
        (folder / "confusion.png", "which class is taken for which; also metrics.json"),
    ]
