"""Where the test data lies, and a skip with a notice where it does not."""

import logging
import os
import signal
from pathlib import Path

import pytest

# Read when torch loads its OpenMP: threads that wait busily are a hundred times slower where other
# work shares the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Signals end commands, also where whoever starts the tests has them ignored, as `nohup` and `&` do.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _folder(path: Path) -> Path:
    if not path.is_dir():
        pytest.skip(f"the folder {path.relative_to(SHARED.parent)} is not beside the checkout")
    return path


@pytest.fixture(scope="session")
def golden() -> Path:
    """The numbers of the published implementations."""
    return _folder(SHARED / "golden")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Real scans, with a MANIFEST."""
    return _folder(SHARED / "data" / "real")


@pytest.fixture(autouse=True)
def no_handler_stays():
    """Hydra's handlers hold the streams of the test that made them."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    for handler in list(root.handlers):
        if handler not in before:
            root.removeHandler(handler)
            handler.close()
