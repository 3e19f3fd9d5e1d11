"""pctx doctor: what is installed, what is used, and why."""

from __future__ import annotations

import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, version

import typer

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
    if not broken:
        _devices(console)
    _open3d(console)
    if broken:
        console.print(f"a run would fail: install {', '.join(broken)}")
        raise typer.Exit(1)
    console.print("a CPU run works")


def _devices(console: object) -> None:
    import torch
    from rich.console import Console

    assert isinstance(console, Console)
    threads = torch.get_num_threads()
    console.print(f"cpu: {torch.backends.cpu.get_cpu_capability()}, {threads} threads")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            console.print(f"cuda:{index}: {torch.cuda.get_device_name(index)}")
    else:
        console.print("cuda: none")


def _open3d(console: object) -> None:
    from rich.console import Console

    assert isinstance(console, Console)
    if importlib.util.find_spec("open3d") is None:
        console.print("windows: none, open3d is not installed; pictures and pages work")
        return


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
