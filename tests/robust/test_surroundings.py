"""Odd names, links, homes, terminals and closed streams: a command works, or says a sentence."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from pctx.data.io.formats import read, write
from pctx.geometry import compiled
from tests.robust.command_cases import CARD
from tests.toy import toy_checkpoint, toy_cloud

DATA = ["data=folder", "data.root=scans"]
PREDICT = ["predict", "model.pt", "scans", "-o", "out", "--device", "cpu"]
PREPARE = ["prepare", *DATA, "data.cache=cache", "workers=0"]
NOBODY = 54321


@pytest.fixture
def here(tmp_path):
    here = tmp_path / "here"
    (here / "scans").mkdir(parents=True)
    toy_checkpoint().save(here / "model.pt")
    (here / "scans/card.yaml").write_text(CARD)
    write(here / "scans/a.las", toy_cloud(300))
    return here


@pytest.mark.parametrize(
    "name",
    [
        *("ä ö.las", "-x.las", "[a]*.las", "a :bug: {0}%s.las", "'q\".las", "a=b;c$(x).las"),
        *("x" * 239 + ".las", "ä" * 119 + ".las", os.fsdecode(b"\xff.las")),
    ],
    ids=ascii,
)
def test_files_of_any_name_are_shown_labelled_and_prepared(name, here, worker):
    (here / "scans/a.las").rename(here / f"scans/{name}")
    code, _, out, err = worker.run(["info", f"scans/{name}"], here)
    shown = f"scans/{name}".encode(errors="backslashreplace").decode()
    assert code == 0 and out.splitlines()[0] == shown, err
    for command in (PREDICT, PREPARE, ["view", f"scans/{name}", "--html", "a.html"]):
        code, _, _, err = worker.run(command, here)
        assert code == 0, err
    assert [path.name for path in (here / "out").iterdir()] == [name]
    assert len(read(here / f"out/{name}")) == 300


def test_a_card_lists_scans_of_any_name(here, worker):
    """Bytes that are no text, and a name of two lines, which a comment would end with its first."""
    (here / "scans/card.yaml").unlink()
    scan = (here / "scans/a.las").read_bytes()
    for name in (b"\xff.las", b"\xfe.las", "ö\n- [.las".encode()):
        (here / "scans" / os.fsdecode(name)).write_bytes(scan)
    cloud = toy_cloud(50, label=False)
    write(here / "scans/b\n- [.ply", cloud)
    for command in (["card", "scans"], ["check", *DATA]):
        err = worker.run(command, here)[3]
        assert "Traceback" not in err and "codec" not in err and "YAML" not in err, err
    assert "1 point" not in err and (here / "scans/card.yaml").is_file(), err


def test_brackets_in_the_names_of_classes_are_no_styles(here, worker):
    card = CARD.replace("tree", "'[/x] tree'").replace("house", "'[red]house'")
    (here / "scans/card.yaml").write_text(card)
    code, _, out, err = worker.run(["check", *DATA], here)
    assert code == 0 and "[/x] tree" in out and "[red]house" in out, err


def test_a_scan_that_cannot_be_read_is_named_and_stops_no_other(here, worker):
    """A link to itself, one to nothing, and a file whose every read is an error of the device."""
    for name, to in (("loop.las", "loop.las"), ("gone.las", "none"), ("bad.las", "/proc/self/mem")):
        (here / "scans" / name).symlink_to(to)
    (here / "scans/again").symlink_to(".")
    for command in (PREDICT, PREPARE):
        code, _, _, err = worker.run(command, here)
        told = [line for line in err.splitlines() if line.startswith("pctx: ")]
        assert code == 1 and len(told) == 3 and "[Errno" not in err, err
        for name in ("loop.las", "gone.las", "scans/bad.las: Input/output error"):
            assert any(name in line for line in told), err
    assert [path.name for path in (here / "out").iterdir()] == ["a.las"]


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]])
def test_closed_streams_end_no_command_and_nothing_is_written_into_a_file(closed, here, worker):
    for command in (["info", "scans/a.las"], ["check", *DATA], PREDICT, ["doctor"]):
        code, _, out, err = worker.run(command, here, closed=closed)
        assert code == 0, err
        assert not (out if 1 in closed else "") and not (err if 2 in closed else "")
    assert len(read(here / "out/a.las")) == 300


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_a_terminal_cannot_show_is_written_otherwise(encoding, here, worker):
    (here / "scans/a.las").rename(here / "scans/点.las")
    for command in (["doctor"], ["info", "scans/点.las"], ["check", *DATA], PREDICT):
        code, _, _, err = worker.run(command, here, environment={"PYTHONIOENCODING": encoding})
        assert code == 0, err


@pytest.mark.parametrize("columns", ["0", "20", "x"])
def test_narrow_terminals_and_those_without_a_width(columns, here, worker):
    around = {"COLUMNS": columns, "NO_COLOR": "1", "TERM": "nonsense"}
    for command in (["doctor"], ["info", "scans/a.las"], ["check", *DATA], ["--help"]):
        assert worker.run(command, here, environment=around)[0] == 0


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be others"
)
def test_a_user_without_name_home_or_temporary_folder_works(here, worker):
    with tempfile.TemporaryDirectory() as place:  # pytest's own is for one user alone
        for path in (Path(place), here, *here.rglob("*")):
            path.chmod(0o777)
        here = here.rename(Path(place) / "here")
        as_nobody(here, worker)


def as_nobody(here, worker):
    nothing = dict.fromkeys(("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME"))
    around = {**nothing, "TMPDIR": "/nowhere"}
    picture = ["view", "scans/a.las", "--render", "a.png", "--size", "320x240"]
    for command in (["doctor"], PREDICT, PREPARE, picture):
        code, _, _, err = worker.run(command, here, user=NOBODY, environment=around)
        assert code == 0, err


@pytest.mark.parametrize("place", ["relative", "/dev/null"])
def test_kernels_are_left_out_where_there_is_no_cache(place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", place)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "a.c"
    source.write_text("int one(void) { return 1; }")
    assert compiled.kernel.__wrapped__(source) is None
    assert list(tmp_path.iterdir()) == [source]


def test_a_kernel_that_others_could_have_put_there_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "pctx").mkdir()
    (tmp_path / "pctx").chmod(0o777)
    with pytest.raises(OSError, match="others than this user can write"):
        compiled._cache_folder()
    (tmp_path / "pctx").chmod(0o755)
    assert compiled._cache_folder() == tmp_path / "pctx"


def test_a_reader_that_goes_away_is_no_fault(here):
    """`pctx info … | head -1`: a true process, whose end is of the interpreter too."""
    files = ["scans/a.las"] * 3
    code = f"import sys; sys.argv[1:] = ['info', *{files}]; from pctx.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as run:
        killer = threading.Timer(120, run.kill)
        killer.start()
        run.stdout.close()
        err = run.stderr.read().decode()
        run.wait()
        killer.cancel()
    assert err == "" and run.returncode in (0, 1)
