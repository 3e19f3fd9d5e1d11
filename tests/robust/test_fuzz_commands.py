"""A short round of the fuzz of the commands, and that it would notice."""

import pytest

from tests.robust.command_cases import COMMANDS, Case, World
from tests.robust.fuzz_commands import fuzz, judge, state

SHORT = {"train": 2, "export": 2}


@pytest.fixture(scope="module")
def world(real_data, tmp_path_factory):
    return World(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_end_well_or_in_a_sentence_whatever_they_are_given(command, world, worker):
    outcome = fuzz(command, SHORT.get(command, 8), worker, world, seed="short")
    assert not outcome.lost


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_hundreds_of_lines_of_a_command_lose_nothing(command, world, worker):
    outcome = fuzz(command, 500, worker, world)
    assert not outcome.lost


@pytest.fixture
def folder(tmp_path):
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in/a.las").write_bytes(b"points")
    return tmp_path


def seen(folder, code=0, err="", **case):
    case = {"arguments": ["info", "in/a.las"], "seconds": 1, **case}
    before = {folder / "in/a.las": state(folder / "in")[folder / "in/a.las"]}
    return judge(Case(**case), folder, code, err, before, None)


@pytest.mark.parametrize(
    ("code", "err", "says"),
    [
        (-11, "", "ended with -11"),
        (3, "pctx: no", "ended with 3"),
        (1, "Traceback (most recent call last)", "no sentence"),
        (1, "pctx: internal error: KeyError: 'x'", "no sentence"),
        (1, "it did not work", "failed without a sentence"),
        (2, "", "wrong usage without a sentence"),
        (1, "pctx: Unable to allocate 3 GiB", "too much memory"),
    ],
)
def test_an_end_that_is_no_sentence_is_lost(code, err, says, folder):
    assert seen(folder, code, err).startswith(says)


def test_a_sentence_is_well(folder):
    assert seen(folder, 1, "pctx: in/a.las: no points") == seen(folder) == ""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("in/a.las", "an input was changed"),
        ("out/.b.77.part.las", "half a file is left"),
        ("b.las", "written elsewhere"),
        ("out/b.las", "failed, and left b.las"),
    ],
)
def test_files_that_should_not_be_are_lost(name, says, folder):
    before = state(folder / "in")
    (folder / name).write_bytes(b"x")
    case = Case(["info", "in/a.las"], 1, ["out/b.las"])
    assert judge(case, folder, 1, "pctx: no", before, None).startswith(says)


def test_a_fork_runs_under_its_limits(worker, folder):
    code, _, out, err = worker.run(["info", "in/a.las"], folder)
    assert (code, out) == (1, "") and "in/a.las" in err
    code, _, _, err = worker.run(["doctor"], folder, room=1)
    assert code != 0
    code, _, out, _ = worker.run(["--version"], folder)
    assert code == 0 and out.startswith("pctx ")
