"""pctx predict on files larger than memory, in several processes, and how sure it is."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pctx.cli.config import UsageError
from pctx.cli.predict_jobs import Job, Rank, find_jobs, find_rank, share
from pctx.data.io.formats import read, write
from pctx.inference.predictor import Predictor
from tests.toy import LABELS, toy_checkpoint, toy_cloud

ALONE = {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.pt"
    toy_checkpoint().save(path)
    return path


@pytest.fixture
def scans(tmp_path):
    for number in range(5):
        write(tmp_path / f"scans/{number % 2}/{number}.npz", toy_cloud(200 + number, seed=number))
    return tmp_path / "scans"


def start(arguments, **variables):
    command = [sys.executable, "-m", "pctx.cli.main", *map(str, arguments)]
    return subprocess.Popen(
        command,
        env={**os.environ, **ALONE, **variables},
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_measures_go_to_every_format(pctx, model, tmp_path):
    cloud = toy_cloud(300)
    prediction = Predictor(model)(cloud)
    write(tmp_path / "scan.laz", cloud)
    flags = ("--confidence", "--entropy", "--margin", "--variance")
    for suffix in ("laz", "ply", "npz"):
        code, _, err = pctx("predict", model, "scan.laz", "-o", f"out.{suffix}", *flags)
        assert code == 0, err
        found = read(tmp_path / f"out.{suffix}").extra
        for name in ("confidence", "entropy", "margin"):
            assert np.abs(found[name] - prediction.column(name)).mean() < 0.01
        assert not np.any(found["variance"])


def test_unsure_points_get_the_unlabeled_code_and_skipped_ones_keep_theirs(pctx, model, tmp_path):
    cloud = toy_cloud(300)
    write(tmp_path / "scan.npz", cloud)
    least = float(np.median(Predictor(model)(cloud).confidence))
    flags = ("--min-confidence", least, "--skip-codes", "6")
    assert pctx("predict", model, "scan.npz", "-o", "out.npz", *flags)[0] == 0
    label = read(tmp_path / "out.npz").label
    assert (label[cloud.label == 6] == 6).all()
    assert 0 < (label[cloud.label != 6] == LABELS.unlabeled).sum() < len(cloud)


def test_a_file_too_large_for_memory_is_streamed_to_the_same_labels(pctx, model, tmp_path, caplog):
    # 10,000 points need some 4 MB as a whole.
    cloud = toy_cloud(10_000, extent=30)
    write(tmp_path / "scan.laz", cloud)
    flags = ("--overlap", "5", "--memory", "6M")
    caplog.set_level("INFO")
    assert pctx("predict", model, "scan.laz", "-o", "out.laz", *flags)[0] == 0
    assert "sorting its points by place" in caplog.text
    whole = Predictor(model, overlap=5.0, memory=6 << 20)(read(tmp_path / "scan.laz"))
    assert (read(tmp_path / "out.laz").label == whole.raw).mean() > 0.99
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("memory", "told"), [("1M", True), ("6M", False)])
def test_a_file_that_is_too_large_and_cannot_be_streamed_is_told(
    pctx, model, tmp_path, caplog, memory, told
):
    write(tmp_path / "scan.npz", toy_cloud(3000))
    code, _, err = pctx("predict", model, "scan.npz", "-o", "out.npz", "--memory", memory)
    assert code == 0, err
    assert ("labelled piece by piece" in caplog.text) is told


def test_workers_write_every_file_once_as_one_process_would(pctx, model, scans, tmp_path):
    (scans / "broken.laz").write_bytes(b"LASF but no more")
    assert pctx("predict", model, scans, "-o", "one")[0] == 1
    code, _, err = pctx("predict", model, scans, "-o", "two", "--workers", "2")
    assert code == 1
    assert err.count("scans/broken.laz:") == 1
    one, two = (sorted(p for p in (tmp_path / n).rglob("*") if p.is_file()) for n in ("one", "two"))
    assert len(one) == 5
    assert [p.relative_to(tmp_path / "one") for p in one] == [
        p.relative_to(tmp_path / "two") for p in two
    ]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))


def test_ranks_share_the_files_and_each_is_done_once(model, scans, tmp_path):
    (scans / "broken.laz").write_bytes(b"LASF but no more")
    arguments = ("predict", model, scans, tmp_path / "missing.laz", "-o", tmp_path / "out")
    ranks = [
        start(arguments, RANK=str(n), WORLD_SIZE="2", LOCAL_RANK=str(n), LOCAL_WORLD_SIZE="2")
        for n in range(2)
    ]
    told = [rank.communicate()[1] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    assert 1 in codes, told
    every = "".join(told)
    for number in range(5):
        assert every.count(f"{number % 2}/{number}.npz: ") == 1, told
    assert every.count("scans/broken.laz:") == 1
    assert every.count("missing.laz:") == 1
    assert all(text.count("points/s") > 0 for text in told)
    assert len(list((tmp_path / "out").rglob("*.npz"))) == 5


@pytest.mark.slow
def test_torchrun_goes_on_to_the_end_when_one_file_is_broken(model, scans, tmp_path):
    (scans / "broken.laz").write_bytes(b"LASF" + b"x" * 1_000_000)  # the largest: first of all
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", "-m", "pctx.cli.main"]
    command += ["predict", str(model), str(scans), "-o", str(tmp_path / "out")]
    done = subprocess.run(
        command,
        env={**os.environ, **ALONE},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 1
    assert "broken.laz" in done.stderr
    assert len(list((tmp_path / "out").rglob("*.npz"))) == 5


def test_shares_part_the_jobs_and_are_even(tmp_path):
    jobs = []
    for number, size in enumerate([100, 10, 60, 50, 0, 5]):
        path = tmp_path / f"{number}.laz"
        path.write_bytes(b"x" * size)
        jobs.append(Job(path, tmp_path / "out" / path.name))
    for count in (1, 2, 3, 10):
        shares = share(jobs, count)
        assert sorted(str(j.source) for part in shares for j in part) == [
            str(j.source) for j in jobs
        ]
    loads = [sum(j.source.stat().st_size for j in part) for part in share(jobs, 2)]
    assert max(loads) <= 115


def test_outputs_below_the_inputs_are_no_inputs(scans, model):
    jobs, failed = find_jobs([scans], scans / "out", None)
    assert (len(jobs), failed) == (5, [])
    write(scans / "out/0/0.npz", toy_cloud(10))
    assert find_jobs([scans], scans / "out", None)[0] == jobs


def test_ranks_that_do_not_go_together_are_refused(monkeypatch):
    assert find_rank() == Rank()
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="RANK=2, WORLD_SIZE=2, .* do not go together"):
        find_rank()
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(UsageError, match="RANK=one"):
        find_rank()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--memory", "lots"), "--memory must be a size such as 4G"),
        (("--vary", "turn"), "--views change rotate"),
        (("--views", "0"), "--views must be from 1 to 1000, found 0"),
        (("--views", "kitti"), "--views must be those of scannet"),
        (("--vote", "0"), "--vote must be 1 voxel or more"),
        (("--min-confidence", "2"), "--min-confidence must be from 0 to 1"),
        (("--skip-codes", "noise"), "--skip-codes takes codes such as 7,18"),
    ],
)
def test_wrong_usage_is_one_sentence(pctx, model, tmp_path, flags, words):
    write(tmp_path / "scan.npz", toy_cloud(10))
    code, _, err = pctx("predict", model, "scan.npz", "-o", "out.npz", *flags)
    assert code == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_progress_is_told_in_lines_where_there_is_no_terminal(monkeypatch, caplog):
    from pctx.cli import progress

    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    caplog.set_level("INFO")
    with progress.points_progress(progress.Task("scan.laz", False)) as tell:
        tell(1000, 9000)
        tell(5000, 9000)
    assert "scan.laz: 56 %" in caplog.text
    assert "points/s" in caplog.text
    assert "left" in caplog.text
    with progress.points_progress(progress.Task("scan.laz", True)) as tell:
        assert tell is None
