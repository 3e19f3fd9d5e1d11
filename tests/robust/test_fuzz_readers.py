"""A short round of the fuzz of the readers, and that it would notice."""

import random

import pytest

from tests.robust import fuzz_readers
from tests.robust.fuzz_readers import Worker, fuzz, lay_out
from tests.robust.seeds import FORMATS, seeds
from tests.robust.worker import attempt

SHORT, LONG = 60, 10_000


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.stop()


@pytest.mark.parametrize("kind", FORMATS)
def test_files_gone_wrong_are_read_or_refused_in_a_sentence(kind, real_data, worker):
    if kind == "e57":
        pytest.importorskip("pye57", reason="the extra e57 is not installed")
    outcome = fuzz(real_data, kind, SHORT, worker, seed="short")
    assert not outcome.lost
    assert outcome.counts["read"] and outcome.counts["refused"]


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_ten_thousand_files_of_a_format_gone_wrong_lose_nothing(kind, real_data, worker):
    outcome = fuzz(real_data, kind, LONG, worker)
    assert not outcome.lost


def test_the_same_seed_gives_the_same_files(tmp_path, real_data):
    sound = seeds(real_data, "ptx")
    first, again = (
        lay_out(tmp_path, sound, "ptx", random.Random("a")).read_bytes() for _ in range(2)
    )
    other = lay_out(tmp_path, sound, "ptx", random.Random("b")).read_bytes()
    assert first == again != other


def read_wrongly(error):
    def read(path):
        raise error

    return read


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyError("x"), "lost KeyError"),
        (ValueError("no name"), "lost ValueError of more than a sentence"),
        (OSError("{path}: one\ntwo"), "lost OSError of more than a sentence"),
    ],
)
def test_what_is_no_sentence_is_lost(error, says, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.robust.worker.read", read_wrongly(error))
    assert attempt(tmp_path / "a.las").startswith(says)


def test_memory_that_runs_out_is_lost_though_the_reader_caught_it(tmp_path, monkeypatch):
    def read(path):
        try:
            raise MemoryError
        except MemoryError as error:
            raise ValueError(f"{path}: cannot be read") from error

    monkeypatch.setattr("tests.robust.worker.read", read)
    assert attempt(tmp_path / "a.las").startswith("lost memory")


@pytest.mark.parametrize(
    ("code", "says"),
    [("import os; os.abort()", "lost crash"), ("import time; time.sleep(9)", "lost hang")],
)
def test_an_end_of_the_interpreter_and_a_hang_are_lost(code, says, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_readers, "SECONDS", 0.5)
    monkeypatch.setattr(fuzz_readers, "PATIENCE", 2)
    monkeypatch.setattr(
        fuzz_readers, "COMMAND", ("-c", f"print('ready', flush=True); input(); {code}")
    )
    worker = Worker()
    assert worker.ask(tmp_path / "a.las").startswith(says)
    assert worker.process is None
