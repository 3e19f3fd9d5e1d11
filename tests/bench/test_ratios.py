"""What was fast and is no longer fails `./run bench`."""

import pytest

from tests.bench import ratios


@pytest.fixture
def table(tmp_path, monkeypatch):
    path = tmp_path / "ratios.csv"
    monkeypatch.setattr(ratios, "TABLE", path)
    monkeypatch.setattr(ratios, "facts", lambda device: {"cpu": "this"})
    return path


def measured(monkeypatch, *runs):
    waiting = iter(runs)
    monkeypatch.setattr(ratios, "measure", lambda: next(waiting))


def test_a_table_keeps_the_ratios_of_each_processor(table):
    ratios.write_table(table, "this", {"a": 2.0})
    ratios.write_table(table, "other", {"a": 3.0, "b": 1.0})
    ratios.write_table(table, "this", {"a": 2.5})
    assert ratios.read_table(table, "this") == {"a": 2.5}
    assert ratios.read_table(table, "other") == {"a": 3.0, "b": 1.0}


def test_a_loss_of_more_than_15_percent_fails_if_it_is_found_twice(table, monkeypatch, capsys):
    ratios.write_table(table, "this", {"a": 2.0, "b": 1.0})
    measured(monkeypatch, {"a": 1.69, "b": 1.0}, {"a": 1.6, "b": 1.0})
    assert ratios.main([]) == 1
    assert "✗" in capsys.readouterr().out
    measured(monkeypatch, {"a": 1.69, "b": 1.0}, {"a": 1.9, "b": 0.5})
    assert ratios.main([]) == 0
    measured(monkeypatch, {"a": 1.71, "b": 0.86})
    assert ratios.main([]) == 0


def test_another_processor_is_told_how_to_begin(table, monkeypatch, capsys):
    ratios.write_table(table, "other", {"a": 9.0})
    measured(monkeypatch, {"a": 1.0}, {"a": 1.5})
    assert ratios.main([]) == 0
    assert "--write" in capsys.readouterr().out
    assert ratios.main(["--write"]) == 0
    assert ratios.read_table(table, "this") == {"a": 1.5}
