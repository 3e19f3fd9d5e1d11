"""What pages name is there: Python names, keys, options, flags, links; and nothing of a machine."""

import importlib
import re
from functools import cache

import pytest
import typer
import yaml

import pctx
from pctx.cli.config import CheckConfig, EvaluateConfig, PrepareConfig, TrainConfig, config_folder
from pctx.cli.main import app
from pctx.data.cards import card, list_cards
from tests.docs.pages import PAGES, ROOT, blocks, inline_code, prose

CONFIGS = config_folder()
CLI = ROOT / "pctx" / "cli"
OTHERS = {
    "--no-build-isolation",
    "--no-python",
    "--nproc-per-node",
    "--cases",
    "--keep",
    "--help",
    "--cfg",
}
"""Flags of pip, torchrun, Hydra and the fuzzers."""
WORDS = frozenset({"weights_only", "shift", "field", "group", "key", "data.raw"})
"""Arguments in Python, and words of the grammar."""
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def known_keys() -> frozenset[str]:
    """Every key of every yaml, from the run's top and from its own file's, and of the schemas."""
    keys = {name for schema in (TrainConfig, EvaluateConfig, CheckConfig, PrepareConfig)
            for name in schema.__dataclass_fields__}  # fmt: skip
    for path in [*CLI.glob("benchmark*.py"), CLI / "subjects.py"]:
        keys |= set(re.findall(r"^    (\w+): .* = field\(", path.read_text(), re.M))
    for path in CONFIGS.rglob("*.yaml"):
        group = path.relative_to(CONFIGS).parent.parts
        inside = () if path.parent == CONFIGS or group[0] == "experiment" else group[:1]
        if path.stem == "feeding":
            inside = ("data",)
        for key in keys_of(yaml.safe_load(path.read_text()) or {}):
            keys |= {".".join((*inside, *key)), ".".join(key), key[-1]}
    return frozenset(keys)


def keys_of(node, above=()):
    if isinstance(node, dict):
        for name, value in node.items():
            yield (*above, str(name))
            yield from keys_of(value, (*above, str(name)))


@cache
def known_flags() -> frozenset[str]:
    def options(command):
        for child in getattr(command, "commands", {}).values():
            yield from options(child)
        for parameter in command.params:
            yield from (*parameter.opts, *parameter.secondary_opts)

    return frozenset(options(typer.main.get_command(app))) | OTHERS


@cache
def groups() -> dict[str, frozenset[str]]:
    """The options of each group of configurations."""
    found = {}
    for folder in (path for path in CONFIGS.rglob("*") if path.is_dir()):
        name = folder.relative_to(CONFIGS).as_posix()
        found[name] = frozenset(path.stem for path in folder.glob("*.yaml"))
    return found


@pages
def test_every_python_name_resolves(page):
    for name in set(re.findall(r"\bpctx(?:\.[A-Za-z_]\w*)+", page.read_text())):
        if name.endswith((".py", ".json", ".yaml")) or "flat" in name:
            continue
        found, parts = pctx, name.split(".")[1:]
        for depth, part in enumerate(parts, start=1):
            if not hasattr(found, part):
                found = importlib.import_module(".".join(["pctx", *parts[:depth]]))
            else:
                found = getattr(found, part)


@pages
def test_every_key_is_one_of_the_configurations(page):
    for code in inline_code(page):
        for key in re.findall(r"(?:^|[\s'+])\+?([a-z][\w.]*(?:/\w+)*)=", code):
            if "pctx" in code.split("=")[0] and " " not in code.split("=")[0]:
                continue
            if key not in known_keys() | set(groups()) | WORDS:
                pytest.fail(f"`{code}`: there is no key {key}")


@pages
def test_every_option_of_a_group_is_there(page):
    for code in inline_code(page):
        for group, value in re.findall(r"(?:^|\s)([a-z]+(?:/[a-z]+)?)=([\w|,]+)", code):
            if group in groups() and not code.startswith("pctx benchmark"):
                for option in re.split(r"[|,]", value):
                    assert option in groups()[group] | {"null", "wet", "stations"}, code


def test_every_experiment_stands_on_the_page_on_training():
    text = (ROOT / "docs" / "training.md").read_text()
    for name in groups()["experiment"] - {"demo"}:
        assert f"`{name}`" in text, name


def test_every_model_of_a_published_size_stands_in_the_readme():
    text = (ROOT / "README.md").read_text()
    for name in pctx.list_models():
        assert name.endswith("_tiny") or f"`{name}`" in text, name


def test_the_table_of_cards_counts_their_classes():
    text = (ROOT / "datasets" / "README.md").read_text()
    for name in list_cards():
        (classes,) = re.findall(rf"^\| `{name}` \|(?:[^|]*\|){{2}} ([^|]+) \|", text, re.M)
        assert re.search(rf"\b{len(card(name).labels)}\b", classes), f"{name}: {classes}"


def test_every_command_stands_on_the_page_on_commands():
    text = (ROOT / "docs" / "commands.md").read_text()
    for name in typer.main.get_group(app).commands:
        assert f"`pctx {name}" in text, name


@pages
def test_every_flag_is_one_of_a_command(page):
    for code in inline_code(page):
        for flag in re.findall(r"(?:^|\s)(--[a-z][\w-]*)", code):
            if not code.startswith(("./run", "pip")):
                assert flag in known_flags(), code


@pages
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            slugs = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, link


@pages
def test_no_page_names_a_machine(page):
    text = page.read_text()
    assert not re.search(r"/(work|tmp|root|home)/|localhost", text), page


def test_every_argument_has_a_line_of_its_own():
    for path in (ROOT / "pctx").rglob("*.py"):
        found = re.search(r"^ +(\w+, )+\w+: .*", arguments_of(path.read_text()), re.M)
        assert not found, f"{path}: {found.group()}"  # the reference would take it for one name


def arguments_of(text):
    """What docstrings say below `Args:` and `Attributes:`, up to the next empty line."""
    return "\n".join(re.findall(r"^ +(?:Args|Attributes):\n((?: +.+\n)+)", text, re.M))


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text()
    for path in (ROOT / "docs").rglob("*.md"):
        assert f" {path.relative_to(ROOT / 'docs').as_posix()}\n" in menu, path.name


def test_the_issue_templates_and_the_citation_are_yaml():
    for path in [*(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"]:
        assert yaml.safe_load(path.read_text()), path
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == pctx.__version__


def test_python_blocks_of_guides_can_be_compiled():
    for page in PAGES:
        for block in blocks(page, "python"):
            if not block.text.startswith("--8<--"):
                compile(block.text, block.place, "exec")
