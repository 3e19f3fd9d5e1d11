"""Several processes train as one: same losses, same scores, each scan counted once."""

import csv
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from lightning_fabric.strategies.launchers.subprocess_script import _hydra_subprocess_cmd

import pctx.cli.train
from pctx.checkpoint import load_checkpoint
from pctx.cli.main import main
from pctx.data.sampler import EpochSampler
from pctx.engine.metrics import Scores
from pctx.engine.ranks import SyncedBatchNorm, gather_points, own_processes, sync_norms
from pctx.geometry.points import PointBatch
from pctx.nn.mlp import BatchNorm
from tests.engine.children import end, start
from tests.toy import ARGUMENTS, LABELS

CHECKOUT = Path(__file__).resolve().parents[2]
TOY = [
    "data.dataset.sensors=[vlp16]",
    "data.num_workers=0",
    "data.grid_size=0.6",
    "data.max_points=800",
    *(f"model.{name}={value}" for name, value in ARGUMENTS.items()),
    "model.shuffle_curves=false",
    "threads=1",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=1",
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(processes, folder, *overrides):
    """Run `pctx train` in as many processes, as torchrun starts them."""
    arguments = [*TOY, *overrides, f"trainer.devices={processes}", f"hydra.run.dir={folder}"]
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GROUP_RANK": "0"}
    env |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    env |= {"TORCHELASTIC_RUN_ID": "test"}
    ranks = [{**env, "RANK": str(i), "LOCAL_RANK": str(i)} for i in range(processes)]
    running = [start(*arguments, **(rank if processes > 1 else {})) for rank in ranks]
    assert [end(pid) for pid in running] == [0] * processes


def column(folder, name):
    with (folder / "metrics.csv").open() as file:
        return [float(row[name]) for row in csv.DictReader(file) if row.get(name)]


# AdamW makes whole steps of the rounding errors in biases before norms, whose gradients are 0; not
# where they are small beside eps.
@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    "optim",
    [
        pytest.param(["optim=sgd"], id="sgd"),
        pytest.param(["+optim.optimizer.eps=1e-4"], id="adamw", marks=pytest.mark.long),
    ],
)
def test_two_processes_are_one(optim, tmp_path):
    common = [
        f"data.dataset.cache={tmp_path / 'scans'}",
        "data.dataset.num_train=6",
        "data.dataset.num_val=3",  # an odd split
        "trainer.max_epochs=2",
        *optim,
    ]
    train(1, tmp_path / "one", *common, "data.batch_size=4")
    train(2, tmp_path / "two", *common, "data.batch_size=2", "trainer.strategy=ddp")
    for name in ("train/loss", "val/loss", "val/miou", "val/oa"):
        one, two = column(tmp_path / "one", name), column(tmp_path / "two", name)
        assert two == pytest.approx(one, abs=1e-5), name
    one, two = (load_checkpoint(tmp_path / n / "model.pt").weights for n in ("one", "two"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_odd_splits_do_not_hang_where_lightning_starts_the_others(tmp_path):
    command = [sys.executable, str(CHECKOUT / "tools" / "train.py"), *TOY]
    command += [
        f"data.dataset.cache={tmp_path / 'scans'}",
        "data.dataset.num_train=3",
        "data.dataset.num_val=1",
        "data.batch_size=1",
        "trainer.max_epochs=2",
        "trainer.strategy=ddp",
        "trainer.devices=2",
        f"hydra.run.dir={tmp_path / 'two'}",
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, timeout=240, check=True)
    assert (tmp_path / "two" / "model.pt").is_file()
    state = torch.load(tmp_path / "two" / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["global_step"] == 4


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """What Lightning would start beside each training, where none is done."""
    found = []

    def fit(config, run):
        found.append(_hydra_subprocess_cmd(1)[0])
        return Scores(confusion=np.zeros((3, 4), dtype=np.int64), labels=LABELS)

    monkeypatch.setattr(pctx.cli.train, "fit", fit)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.mark.parametrize("words", [["tools/train.py"], ["pctx", "train"]])
def test_other_processes_are_started_by_the_words_of_the_first(words, commands, monkeypatch):
    monkeypatch.setattr(sys, "argv", [*words, "seed=1", "name=x", "hydra.run.dir=run"])
    with pytest.raises(SystemExit):
        main() if words[0] == "pctx" else runpy.run_path(
            str(CHECKOUT / words[0]), run_name="__main__"
        )
    (command,) = commands
    place = command.index("seed=1")
    assert command[place : place + 2] == ["seed=1", "name=x"]
    assert command[place - len(words[1:]) : place] == words[1:]
    assert command.count("train") == len(words[1:])


def test_other_processes_of_a_sweep_train_one_run_of_it_in_its_folder(commands, monkeypatch):
    sweep = ["pctx", "train", "-m", "seed=1,2", "name=x", "hydra.sweep.dir=sweep"]
    monkeypatch.setattr(sys, "argv", sweep)
    with pytest.raises(SystemExit):
        main()
    for number, command in enumerate(commands):
        assert "-m" not in command[command.index("train") :]
        assert f"seed={number + 1}" in command
        (folder,) = (word for word in command if word.startswith("hydra.run.dir="))
        assert folder.endswith(f'sweep/{number}"')
    assert len(commands) == 2


def test_a_run_of_a_sweep_leaves_no_trace_of_its_processes(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("MASTER_PORT", "1")
    before = dict(os.environ)
    with own_processes():
        os.environ.update(LOCAL_RANK="0", NODE_RANK="0", WORLD_SIZE="2")
    assert dict(os.environ) == before
    monkeypatch.setenv("LOCAL_RANK", "1")
    with own_processes():
        os.environ.update(WORLD_SIZE="2")
    assert os.environ.pop("WORLD_SIZE") == "2"


def sampler(share, samples=7, size=4):
    return EpochSampler(samples, num_samples=samples, batch_size=size, share=share)


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_the_parts_of_a_batch_are_the_batch(processes):
    whole = sampler((0, 1)).batches()
    shares = [sampler((number, processes)) for number in range(processes)]
    for i, batch in enumerate(whole):
        parts = [share.batches()[i] for share in shares if not share.fills_in(i)]
        assert sorted(draw for part in parts for draw in part) == sorted(batch)
        fillers = [share.batches()[i] for share in shares if share.fills_in(i)]
        assert all(part == [batch[0]._replace(max_points=1)] for part in fillers)
    assert len({len(share.batches()) for share in shares}) == 1


def cloud(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return PointBatch(
        coord=torch.randn(n, 3, generator=generator),
        grid_coord=torch.arange(3 * n).view(n, 3),
        feat=torch.randn(n, 5, generator=generator),
        offsets=torch.tensor([0, n // 2, n]),
        label=torch.randint(-1, 3, (n,), generator=generator),
    )


def both_ways(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    clouds = [cloud(40, 0), cloud(9, 1)]
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 4), BatchNorm(4), torch.nn.Linear(4, 3))
    sync_norms(net)
    assert isinstance(net[1], SyncedBatchNorm)
    logits, points = gather_points(net(clouds[rank].feat), clouds[rank])
    loss = logits.logsumexp(1)[points.label >= 0].mean()
    loss.backward()
    grads = [parameter.grad for parameter in net.parameters()]
    for grad in grads:
        dist.all_reduce(grad)
    if rank == 0:
        found = [loss.detach(), net[1].running_var, *grads, logits.detach(), points.offsets]
        torch.save(found, folder / "found.pt")
    dist.destroy_process_group()


def test_loss_norms_and_gradients_are_those_of_all_points(tmp_path):
    mp.spawn(both_ways, (free_port(), tmp_path), nprocs=2)
    clouds = [cloud(40, 0), cloud(9, 1)]
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 4), BatchNorm(4), torch.nn.Linear(4, 3))
    logits = net(torch.cat([each.feat for each in clouds]))
    label = torch.cat([each.label for each in clouds])
    loss = logits.logsumexp(1)[label >= 0].mean()
    loss.backward()
    grads = [parameter.grad for parameter in net.parameters()]
    offsets = torch.tensor([0, 20, 40, 44, 49])
    expected = [loss.detach(), net[1].running_var, *grads, logits.detach(), offsets]
    for found, wanted in zip(torch.load(tmp_path / "found.pt"), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
