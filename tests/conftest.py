"""Where the test data lies, and a skip with a notice where it does not."""

from pathlib import Path

import pytest

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
