"""pctx predict: label files with a model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pctx.cli.config import UsageError, named_numbers, pick_device

if TYPE_CHECKING:
    from pctx.checkpoint import Checkpoint
    from pctx.cli.predict_jobs import Rank
    from pctx.data.labels import LabelSet

EXAMPLES = """Examples:

pctx predict model.pt scan.laz -o labelled.laz

pctx predict model.pt scans/ -o labelled/ --format laz --workers 4

pctx predict model.pt 000000.bin -o 000000.label

pctx predict model.pt scan.ply -o out.ply --fill intensity=0 --entropy

pctx predict model.pt tile.laz -o out.laz --memory 4G --min-confidence 0.5

pctx predict model.pt scan.laz -o scan.npz --features

pctx predict model.pt 000000.bin -o 000000.label --views semantic_kitti

torchrun --no-python --nproc-per-node 2 pctx predict model.pt scans/ -o labelled/
"""


def predict(
    model: Annotated[
        str, typer.Argument(help="A model file, such as runs/…/model.pt.", metavar="MODEL")
    ],
    inputs: Annotated[list[str], typer.Argument(help="Files or folders.", metavar="INPUT")],
    out: Annotated[
        str, typer.Option("-o", "--out", help="A file for one input file, else a folder.")
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Suffix of the files written: laz, las, ply, pcd, npz, txt, xyz, csv, label; "
            "by default that of the source.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    backend: Annotated[
        str, typer.Option(help="Of sparse convolutions: auto, torch, spconv; same numbers.")
    ] = "auto",
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="What may be taken, such as 4G; by default what is free."
        ),
    ] = None,
    tile: Annotated[
        float | None, typer.Option(help="Edge of a tile in metres; by default as large as fits.")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(help="Metres a tile sees around itself (50 voxels).")
    ] = None,
    views: Annotated[
        str,
        typer.Option(
            metavar="N|NAME",
            help="Forward passes a tile, the first the plain one; or the published views of "
            "nuscenes, s3dis, scannet, semantic_kitti or waymo.",
        ),
    ] = "1",
    vary: Annotated[
        str, typer.Option(help="What differs from view to view, comma-separated.")
    ] = "rotate,flip,scale,shuffle",
    vote: Annotated[
        int | None,
        typer.Option(metavar="K", help="A point takes the mean of its K nearest voxels."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option(help="Write the probability of each class too.")
    ] = False,
    confidence: Annotated[
        bool, typer.Option(help="Write the probability of the likeliest class.")
    ] = False,
    entropy: Annotated[bool, typer.Option(help="Write the entropy, 0 sure to 1 unsure.")] = False,
    margin: Annotated[
        bool, typer.Option(help="Write by how much the likeliest class is likelier than the next.")
    ] = False,
    variance: Annotated[
        bool, typer.Option(help="Write how much the views disagree (with --views).")
    ] = False,
    min_confidence: Annotated[
        float, typer.Option(metavar="P", help="Below this probability, write the unlabeled code.")
    ] = 0.0,
    features: Annotated[
        bool, typer.Option(help="Write what the model's last layer reads, as `feat` (npz only).")
    ] = False,
    fill: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="A value for a channel that the files lack."),
    ] = None,
    skip_codes: Annotated[
        str | None,
        typer.Option(help="Codes such as 7,18 (noise): points that have one are not looked at."),
    ] = None,
    only_classes: Annotated[
        str | None,
        typer.Option(help="Comma-separated names: change only points predicted as one of these."),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files that exist.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the files.")] = 1,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say only what went wrong.")] = False,
) -> None:
    """Label point clouds. Each file written has the points of its source, in their order."""
    # Large tensors take pages of 2 MB, fewer and sooner there. Read by torch when it is loaded.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from pctx.checkpoint import load_checkpoint
    from pctx.cli.predict_jobs import allowed, find_jobs, find_rank, share
    from pctx.cli.predict_run import Order, run_jobs, run_workers

    sources = [_path("INPUT", text) for text in inputs]
    rank = find_rank()
    jobs, failed = find_jobs(sources, _path("-o", out), format_)
    failed = failed if rank.number == 0 else []
    model_file, place = _path("MODEL", model), _place(device, rank)
    checkpoint = load_checkpoint(model_file)
    settings: dict[str, Any] = {
        "tile": tile,
        "overlap": overlap,
        "views": _number_or_name(views),
        "vary": _words(vary),
        "fill": named_numbers("--fill", fill or []),
        "vote": vote,
        "min_confidence": min_confidence,
    }
    _check(checkpoint, settings)
    settings |= {"skip": _codes(skip_codes), "memory": _memory(memory, place, rank, workers)}
    measures = {
        "entropy": entropy,
        "confidence": confidence,
        "margin": margin,
        "variance": variance,
    }
    order = Order(
        model=model_file,
        device=place,
        backend=backend,
        settings=settings,
        only=_class_numbers(only_classes, checkpoint.labels),
        probabilities=probabilities,
        measures=tuple(name for name, wanted in measures.items() if wanted),
        features=features,
        overwrite=overwrite,
        quiet=quiet,
    )
    mine = share(jobs, rank.count)[rank.number] if rank.count > 1 else jobs
    mine = allowed(mine, checkpoint.labels, features, overwrite, failed)
    if workers > 1 and len(mine) > 1:
        failed += run_workers(order, mine, workers)
    else:
        failed += run_jobs(order, checkpoint, mine)
    for sentence in failed:
        sys.stderr.write(f"pctx: {sentence}\n")
    rank.wait_for_all()
    if failed:
        raise typer.Exit(1)


def _path(what: str, text: str) -> Path:
    """Turn a word of the command line into a path; an empty one would name the current folder."""
    if not text:
        raise UsageError(f"{what} is empty; name a file or a folder")
    return Path(text)


def _place(device: str, rank: Rank) -> str:
    """Give each process of a machine its own GPU."""
    picked = pick_device(device)
    if picked != "cuda" or rank.local_count == 1:
        return picked
    import torch

    return f"cuda:{rank.local % torch.cuda.device_count()}"


def _memory(text: str | None, device: str, rank: Rank, workers: int) -> int:
    """Give the bytes of each process that works on this machine."""
    import torch

    from pctx.inference.memory import available_memory, parse_size

    try:
        found = available_memory(torch.device(device)) if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    return found // (workers * rank.local_count)


def _check(checkpoint: Checkpoint, settings: dict[str, Any]) -> None:
    from pctx.inference.predictor import check_settings

    try:
        check_settings(checkpoint, **settings)
    except ValueError as error:
        raise UsageError(f"--{error}") from error


def _number_or_name(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _codes(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in _words(text or ""))
    except ValueError as error:
        raise UsageError(f"--skip-codes takes codes such as 7,18, found {text!r}") from error


def _class_numbers(names: str | None, labels: LabelSet) -> tuple[int, ...] | None:
    if names is None:
        return None
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in labels.names:
            known = ", ".join(labels.names)
            raise UsageError(f"the model has no class {name!r}; it has {known}")
    return tuple(labels.names.index(name) for name in wanted)
