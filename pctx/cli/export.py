"""pctx export: a trained network as a graph that runs without pctx's network code."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from pctx.cli.config import UsageError

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx export model.pt -o net.pt2

pctx export model.pt -o net.onnx

pctx export model.pt -o net.pt2 --onnx  (net.onnx, too)
"""

PROGRAM, ONNX = ".pt2", ".onnx"


def export(
    model: Annotated[
        Path, typer.Argument(help="A model file, such as runs/…/model.pt.", metavar="MODEL")
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The file to write, a .pt2 or an .onnx.")
    ],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Beside a .pt2, write an .onnx too.")
    ] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace files that exist.")] = False,
) -> None:
    """Write the network half of a model as a graph, for any number of points and clouds."""
    if out.suffix not in (PROGRAM, ONNX):
        raise UsageError(f"-o must end in {PROGRAM} or {ONNX}, found {out}")
    targets = [out]
    if onnx and out.suffix == PROGRAM:
        targets.append(out.with_suffix(ONNX))
    for target in targets:
        if target.is_dir():
            raise UsageError(f"-o {target} is a folder; give the name of a file")
        if target.exists() and not overwrite:
            raise FileExistsError(f"{target}: exists already; --overwrite replaces it")

    from pctx.checkpoint import load_checkpoint
    from pctx.inference.export import (
        export_network,
        facts_of,
        require_onnx,
        write_onnx,
        write_program,
    )

    if targets[-1].suffix == ONNX:
        require_onnx()
    for talker in ("torch.onnx", "onnxscript", "onnx_ir"):
        logging.getLogger(talker).setLevel(logging.ERROR)
    checkpoint = load_checkpoint(model)
    log.info("tracing the network of %s; a minute or so", model)
    program, names = export_network(checkpoint.build())
    facts = facts_of(checkpoint, names)
    for target in targets:
        write = write_program if target.suffix == PROGRAM else write_onnx
        write(target, program, facts)
        log.info("%s: a graph of %d inputs (docs/export.md runs it)", target, len(names))
