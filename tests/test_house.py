"""The house: small rooms, no circle, the public names and commands that the interface promises."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer

import pctx
from pctx.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pctx"
MOST_LINES = 350
HEAVY = ("torch", "numpy", "hydra", "open3d", "pytorch_lightning", "matplotlib", "scipy")
COMMANDS = sorted(typer.main.get_group(app).commands)
PROMISED = {
    "FeatureSpec",
    "LabelSet",
    "PointBatch",
    "PointCloud",
    "Prediction",
    "Predictor",
    "__version__",
    "create_model",
    "list_models",
    "load_checkpoint",
    "pack",
    "read",
    "render",
    "show",
    "voxelize",
    "write",
}


def test_no_room_is_too_large():
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "tools").glob("*.py")]:
        assert len(path.read_text().splitlines()) <= MOST_LINES, path


def test_no_module_imports_itself_by_others():
    graph = {name: imports(path) for name, path in modules().items()}
    done, above = set(), []

    def visit(name):
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name in done:
            return
        above.append(name)
        for other in graph[name]:
            visit(other)
        above.pop()
        done.add(name)

    for name in graph:
        visit(name)


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> list[str]:
    """The modules of pctx that are imported when this one is: not in functions, not for types."""
    known, found = modules(), []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in known else node.module for name in inside]
    return [name for name in dict.fromkeys(found) if name in known and known[name] != path]


def test_the_promised_names_are_public():
    assert set(pctx.__all__) >= PROMISED
    assert (PACKAGE / "py.typed").is_file()


def test_the_promised_commands_are_there():
    promised = "demo train evaluate predict view info prepare check card convert export benchmark"
    assert {*promised.split(), "doctor"} <= set(COMMANDS)
    for name in COMMANDS:
        assert name == "doctor" or (ROOT / "tools" / f"{name}.py").is_file(), name


def fresh(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_pctx_imports_nothing_heavy():
    code = f"import sys, pctx; pctx.__version__; print(sorted(set({HEAVY}) & set(sys.modules)))"
    assert fresh(code).strip() == "[]"


def test_the_help_of_every_command_imports_nothing_heavy():
    code = (
        "import sys, io, contextlib\n"
        "from pctx.cli.main import main\n"
        f"for words in [[], ['--help'], *([name, '--help'] for name in {COMMANDS})]:\n"
        "    sys.argv = ['pctx', *words]\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as shown:\n"
        "        try: main()\n"
        "        except SystemExit as stop: assert stop.code in (0, None, 2), words\n"
        "    assert 'Usage' in shown.getvalue(), words\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)))"
    )
    assert fresh(code).strip() == "[]"


@pytest.mark.parametrize("words", [["bogus"], ["predict", "--bogus"], ["train", "bogus=1"]])
def test_what_is_not_understood_ends_with_2(words, monkeypatch, tmp_path):
    from pctx.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pctx", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2


def test_the_version_is_the_same_everywhere():
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^version = "(.*)"$', text, re.M).group(1) == pctx.__version__


def test_no_text_of_the_project_names_a_machine():
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "configs").rglob("*.yaml"), ROOT / "run"]:
        assert not re.search(r"(?<![\w.])/(work|home|root)/", path.read_text()), path
