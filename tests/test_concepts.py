"""The pages of docs/concepts: their code runs, their commands work, their pictures are there."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
from PIL import Image

from pctx.cli.main import main
from pctx.data.io.formats import write
from tests.toy import toy_checkpoint, toy_cloud

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "concepts").glob("*.md"))
MAX_BYTES = 300_000
"""Of a picture: a page loads at once."""
SMALL = ("--size", "320x240")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with what the pages name: scan.laz and model.pt."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "scan.laz", toy_cloud(2000))
    toy_checkpoint().save(tmp_path / "model.pt")
    return tmp_path


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, folder):
    code = blocks(page, "python")
    assert code
    names = {}
    for block in code:
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_views_of_a_page_work(page, folder, monkeypatch):
    for line in "".join(blocks(page, "bash")).splitlines():
        if line.startswith("pctx view "):
            monkeypatch.setattr("sys.argv", [*shlex.split(line, comments=True), *SMALL])
            with pytest.raises(SystemExit) as stop:
                main()
            assert not stop.value.code, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_links_to_is_there(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        target = page.parent / link
        assert target.is_file(), link
        if target.suffix == ".png":
            assert target.stat().st_size <= MAX_BYTES, link


@pytest.mark.parametrize(
    ("tool", "files", "names"),
    [
        ("draw_concepts.py", ["scan.laz"], ["curves.png", "windows.png"]),
        ("draw_attention.py", ["scan.laz", "model.pt"], ["attention.png"]),
        ("draw_pipeline.py", ["scan.laz", "model.pt"], ["pipeline.png"]),
        pytest.param(
            "draw_transforms.py",
            [],
            [f"transforms_{name}.png" for name in ("moves", "points", "colors", "mixtures")],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_pictures_can_be_drawn_again(folder, monkeypatch, tool, files, names):
    monkeypatch.setattr("sys.argv", [tool, *files, "-o", "."])
    runpy.run_path(str(ROOT / "tools" / tool), run_name="__main__")
    for name in names:
        with Image.open(name) as drawn, Image.open(ROOT / "docs" / "pictures" / name) as kept:
            assert drawn.size == kept.size
