"""Dataset cards by name: those in `datasets/` of a checkout, or packed into the wheel."""

from __future__ import annotations

from pathlib import Path

from pctx.data.labels import Card, read_card

_PACKAGE = Path(__file__).resolve().parents[1]


def cards_folder() -> Path:
    """Give the folder of the cards, one folder a dataset."""
    packed = _PACKAGE / "datasets"
    return packed if packed.is_dir() else _PACKAGE.parent / "datasets"


def list_cards() -> list[str]:
    """Name the datasets that have a card."""
    return sorted(path.parent.name for path in cards_folder().glob("*/card.yaml"))


def find_card(name_or_path: str | Path) -> Path:
    """Find a card by the name of its dataset, or by the path of a card or of its folder.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no dataset has this name; the message lists those there are.
    """
    path = Path(name_or_path)
    named = cards_folder() / path / "card.yaml"
    if len(path.parts) == 1 and named.is_file():
        return named
    if path.is_dir() and (path / "card.yaml").is_file():
        return path / "card.yaml"
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such dataset card; `pctx card FOLDER` writes one")
        return path
    raise ValueError(f"no dataset card {str(path)!r}; known: {', '.join(list_cards()) or 'none'}")


def card(name_or_path: str | Path) -> Card:
    """Read a card found by `find_card`.

    Raises:
        FileNotFoundError, ValueError: as `find_card` and `read_card` do.
    """
    return read_card(find_card(name_or_path))
