"""pctx doctor: what is installed, what is used, and why."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """Examples:

pctx doctor     (paste what it prints into a report of a fault)
"""

_NEEDED = (
    "torch", "numpy", "scipy", "hydra-core", "pytorch-lightning", "torchmetrics",
    "lazrs", "pillow", "matplotlib",
)  # fmt: skip
_OPTIONAL = ("open3d", "spconv-cu120", "spconv-cu126", "torch-scatter", "tensorboard")


def doctor() -> None:
    """Print versions, devices and backends; exit 0 when a CPU run would work."""
    from rich.console import Console
    from rich.table import Table

    from pctx import __version__

    console = Console()
    console.print(
        f"pctx {__version__} · Python {platform.python_version()} · "
        f"{platform.system()} {platform.machine()}"
    )
    table = Table(box=None, padding=(0, 2))
    table.add_column("package")
    table.add_column("version")
    table.add_column("")
    broken = [name for name in _NEEDED if _version(name) is None]
    for name in _NEEDED:
        table.add_row(name, _version(name) or "missing", "needed")
    for name in _OPTIONAL:
        table.add_row(name, _version(name) or "–", "optional")
    console.print(table)
    if broken:
        console.print(f"a run would fail: install {', '.join(broken)}")
        raise typer.Exit(1)
    _print_devices(console)
    _print_windows(console)
    console.print("a CPU run works")


def _print_devices(console: Console) -> None:
    import torch

    from pctx.nn.backend import engines

    threads = torch.get_num_threads()
    console.print(f"cpu: {torch.backends.cpu.get_cpu_capability()}, {threads} threads")
    for index in range(torch.cuda.device_count()):
        console.print(f"cuda:{index}: {torch.cuda.get_device_name(index)}")
    if not torch.cuda.is_available():
        console.print("cuda: none")
    for work, engine in engines().items():
        console.print(f"{work}: {engine}")


def _print_windows(console: Console) -> None:
    from pctx.vis.viewer import why_no_window

    reason = why_no_window()
    console.print(f"windows: {reason or 'Open3D'}", soft_wrap=True)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
