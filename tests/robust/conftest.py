import pytest

from tests.robust.fuzz_commands import Worker


@pytest.fixture(scope="session")
def worker():
    """The process that runs commands; it takes seconds to start, so that there is one."""
    worker = Worker()
    yield worker
    worker.stop()
