"""The pages a reader sees: their fenced blocks, and what they name."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "datasets/README.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
_FENCE = re.compile(r"(?:^<!-- test: ([^\n]*?) -->\n)?^```([^\n]*)\n(.*?)^```", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block. `notes` are the words of a comment `<!-- test: … -->` on the line above."""

    page: Path
    line: int
    language: str
    text: str
    notes: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The blocks of a page, or those in one language."""
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        notes, info, body = match.groups()
        words = info.split()
        line = text[: match.start(2)].count("\n") + 1
        name = words[0] if words else ""
        found.append(Block(page, line, name, body, tuple((notes or "").split())))
    return [block for block in found if language is None or block.language == language]


def files_of(page: Path) -> dict[str, str]:
    """The blocks that are files: their language is followed by a title, their name."""
    text = page.read_text()
    return dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```', text, re.S | re.M))


def commands(block: Block) -> list[str]:
    """The lines of a bash block; one that ends in a backslash goes on in the next."""
    joined = block.text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and line[0] != "#"]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def inline_code(page: Path) -> list[str]:
    """What stands between backticks, outside of fenced blocks."""
    return [" ".join(words.split()) for words in re.findall(r"`([^`]+)`", prose(page))]
