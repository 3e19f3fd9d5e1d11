import shutil

import pytest

from tests.docs import world


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """The files of the world, made once."""
    folder = tmp_path_factory.mktemp("world")
    world.build(folder)
    return folder


@pytest.fixture
def here(files, tmp_path, monkeypatch):
    """A copy of the world, where the test runs."""
    folder = tmp_path / "here"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return folder
