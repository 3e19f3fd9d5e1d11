"""Small kernels in C: built once by the C compiler that is there, kept in the user's cache.

A kernel lies beside the module that calls it, which has a plain twin and tries the kernel against
it before it is used. Where there is no compiler or no cache, the twin does the work and nothing is
said. `PCTX_COMPILE=0` leaves all kernels out.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

# Without trapping math, which changes no number, loops that round can be vectors.
_FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fno-trapping-math", "-fPIC", "-shared")
_SECONDS = 60.0
"""For the compiler, which takes one or two."""

log = logging.getLogger(__name__)


@cache
def kernel(source: Path) -> ctypes.CDLL | None:
    """Load a kernel, which is built first where this user's cache has none for this processor."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if os.environ.get("PCTX_COMPILE") == "0" or not compiler or sys.platform == "win32":
        return None
    try:
        built = _cache_folder() / f"{source.stem}-{_fingerprint(source, compiler)}.so"
        if not built.is_file():
            _build(source, compiler, built)
        return ctypes.CDLL(str(built))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # or there is no home
        log.debug("no compiled %s: %s", source.stem, error)
        return None


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "pctx"
    if not folder.is_absolute():
        raise OSError(f"{folder}: the cache of this user has no place of its own")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # What lies here is loaded into the program: nobody else may have put it there.
    state = folder.stat()
    if state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{folder}: others than this user can write here")
    return folder


def _fingerprint(source: Path, compiler: str) -> str:
    """Tell apart what a kernel depends on: source, compiler, processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    texts = [each.read_text() for each in (source, *sorted(source.parent.glob("*.h")))]
    parts = (*texts, compiler, *_FLAGS, platform.machine(), flags)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _build(source: Path, compiler: str, to: Path) -> None:
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        beside = Path(folder) / to.name
        command = [compiler, *_FLAGS, str(source), "-o", str(beside)]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        beside.replace(to)
