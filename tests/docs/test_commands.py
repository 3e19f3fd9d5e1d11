"""Every command that a page shows works: in a small world, with tiny settings added.

A comment `<!-- test: WORDS -->` above a block may say: `slow`; `compose`, for what needs a dataset
or a machine that is not here: the configuration is composed and nothing runs.
"""

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pctx.cli.main import main
from tests.docs.pages import PAGES, ROOT, Block, blocks, commands, files_of
from tests.docs.world import STREET, TINY

PLAIN = re.compile(
    r"(sudo apt|source |git tag|pre-commit |pip install (-e|pre-commit|--no-build)|\./run)"
)
"""What is not run here: it changes the machine, or is what runs these tests."""
BENCHMARK = {
    "plan": ("points=2000", "voxels=2000", "sizes=[2000]", "repeats=1"),
    "conv": ("voxels=1000", "channels=[4]", "repeats=1"),
    "models": ("models=[litept_tiny]", "voxels=300", "repeats=1"),
    "loader": ("points=2000", "scans=2", "workers=1", "repeats=1"),
    "predict": ("repeats=1",),
}
COMPOSED = re.compile(
    r"experiment=|resume=|init_from=(?!runs/\w)|hydra/|model=\S*_(?!tiny)\w+|=/data| -m | … "
)
"""Of these the configuration is composed: what they do needs weights, data or hours."""

OWN = ("add-a-model", "add-a-dataset", "add-a-format")
"""Their commands run in test_recipes.py, where what they add is there."""

BLOCKS = [block for page in PAGES if page.stem not in OWN for block in blocks(page, "bash")]


def marked(block: Block):
    marks = [pytest.mark.slow] if "slow" in block.notes else []
    return pytest.param(block, id=block.place, marks=marks)


@pytest.mark.parametrize("block", [marked(block) for block in BLOCKS])
def test_the_commands_of_a_block_work_one_after_another(block, here, monkeypatch, capsys):
    monkeypatch.syspath_prepend(here)
    for name, text in files_of(block.page).items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    for line in commands(block):
        line = line.removeprefix("PYTHONPATH=. ")
        words = [word for word in shlex.split(line, comments=True) if word != "…"]
        if "hydra/" in line and find_spec("hydra_plugins") is None:
            continue  # of an extra that is not installed
        if not words or PLAIN.match(line):
            check_plain(words)
        elif words[:2] == ["pip", "install"]:
            check_extras(words)
        elif words[0] == "python":
            check_script(words)
        else:
            if words[0] == "torchrun":
                words = words[words.index("pctx") :]
            arguments = prepared(words, line, "compose" in block.notes)
            code = run(arguments, monkeypatch)
            captured = capsys.readouterr()
            assert code == expected(words, line), f"{line}\n{arguments}\n{captured.err}"


def prepared(words: list[str], line: str, compose: bool) -> list[str]:
    """What is run instead of a line: the same with small settings."""
    assert words[0] == "pctx", line
    words = [word.replace("runs/…", "runs/run") for word in words]
    name = words[1] if len(words) > 1 else ""
    if name in ("train", "evaluate", "prepare", "check") and (compose or COMPOSED.search(line)):
        plain = [re.sub(r"^([\w./]+=[^\[{,]+),.*", r"\1", word) for word in words if word != "-m"]
        plain = [word for word in plain if not word.startswith("resume=")]
        return [*plain, "--cfg", "job"]
    if "--help" in words or "--cfg" in words:
        return words
    if name == "demo":
        return [*words, "--help"]
    if name == "train":
        simulated = not any(word.startswith("data=") and word != "data=street" for word in words)
        street = STREET if simulated else ()
        return [*words, *TINY, *street, "trainer.max_epochs=1"]
    if name == "evaluate" and "checkpoint=model.pt" in words and "data=folder" not in words:
        return [*words, "data=folder", "data.root=scans", "split=val", "hydra.run.dir=scores"]
    if name == "benchmark" and len(words) > 2:
        return [*words, *BENCHMARK.get(words[2], ("--help",))]
    if name in ("predict", "card", "export") or "-o" in words:
        words = [*words, "--overwrite"]
    if name == "predict" and "--workers" in words:
        words[words.index("--workers") + 1] = "1"
    if name == "view":
        words = [*words, "--size", "320x240"]
    return words


def expected(words: list[str], line: str) -> int:
    """Published weights are no file of the world: that is said, after all else was understood."""
    return 1 if words[1] == "convert" and ".pth -o" in line else 0


def run(arguments: list[str], monkeypatch) -> int:
    Path("runs/run").mkdir(parents=True, exist_ok=True)
    model = Path("runs/run/model.pt")
    if not model.exists():
        model.write_bytes(Path("model.pt").read_bytes())
    monkeypatch.setattr(sys, "argv", arguments)
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def check_plain(words: list[str]) -> None:
    if words and words[0] == "./run" and len(words) > 1 and words[1] not in ("pctx", "python"):
        assert re.search(rf"^  {re.escape(words[1])}\)", (ROOT / "run").read_text(), re.M), words


def check_extras(words: list[str]) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    known = re.findall(r"^(\w+) = \[", section, re.M)
    for extras in re.findall(r"pctx\[([\w,]+)\]", " ".join(words)):
        assert set(extras.split(",")) <= set(known), words


def check_script(words: list[str]) -> None:
    place = words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1]
    assert words[1:3] == ["-m", "pytest"] or (ROOT / place).is_file(), words


def test_shell_lines_are_marked_as_bash():
    for page in PAGES:
        for block in blocks(page, ""):
            assert not re.search(r"^(\./run|pctx|pip) ", block.text, re.M), block.place


def test_the_site_understands_every_fence():
    """Others would stand in a page as they are, with all that is between them."""
    for page in PAGES:
        for fence in re.findall(r"^```(.+)$", page.read_text(), re.M):
            assert re.fullmatch(r'\w+( title="[^"]+")?| \{ \.\w+ title="[^"]+" \}', fence), page
