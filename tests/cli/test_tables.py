"""Tables on the terminal: numbers stay whole, however narrow it is."""

import numpy as np
import pytest

from pctx.cli.tables import print_parts, print_scores
from pctx.data.labels import LabelSet
from pctx.engine.metrics import Scores

LABELS = LabelSet(
    names=("road", "medium vegetation"), colors=((1, 1, 1), (2, 2, 2)), raw=((1,), (2,))
)


@pytest.mark.parametrize("columns", [20, 40, 60, 200])
def test_numbers_are_whole_on_narrow_terminals(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", f"{columns}")
    confusion = np.array([[1_500_000, 20, 0], [31, 1_200_000, 0]])
    found = Scores(confusion=confusion, labels=LABELS)
    print_scores(found, "split val")
    print_parts({"within 0.5 m of another class": found})
    words = capsys.readouterr().out.split()
    assert "…" not in "".join(words)
    assert {"precision", "1,500,020", "1,200,031", "2,700,051", "1.000", "mAcc"} <= set(words)
    assert ("┃" in words) == (columns >= 60)
