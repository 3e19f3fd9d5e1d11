"""Settings that no run can have are wrong usage, found out before anything is read."""

import pytest
import torch
from omegaconf import OmegaConf

from pctx.cli.config import UsageError, compose
from pctx.cli.settings import check_settings, choose_precision

WRONG = [
    ({"seed": -1}, "seed must be a whole number from 0 on, found -1"),
    ({"patience": 0}, "patience must be a whole number from 1 on, found 0"),
    ({"trainer.max_epochs": "soon"}, "trainer.max_epochs must be a whole number from -1 on"),
    ({"trainer.accumulate_grad_batches": 0}, "trainer.accumulate_grad_batches must be a whole"),
    ({"trainer.log_every_n_steps": 0}, "trainer.log_every_n_steps must be a whole"),
    ({"optim.lr": "fast"}, "optim.lr must be a number, found fast"),
    ({"trainer.gradient_clip_val": -1}, "trainer.gradient_clip_val must be a norm, or null"),
    ({"trainer.precision": "bf16-true"}, "trainer.precision must be one of 32-true, bf16-mixed"),
    ({"trainer.precision": "16-mixed"}, "trainer.precision=16-mixed needs a GPU; a CPU has bf16"),
    ({"trainer.precision": 16}, "trainer.precision=16-mixed needs a GPU"),
    ({"trainer.strategy": "fsdp"}, "trainer=fsdp needs GPUs, as it splits the model over them"),
    ({"compile": True}, "compile=true needs a GPU; on a CPU it takes minutes"),
]


@pytest.fixture(scope="module")
def config():
    config = compose("train", ["name=x"])
    OmegaConf.set_struct(config, False)
    return config


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_a_setting_that_cannot_be_is_named(config, monkeypatch, changes, words):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    config = config.copy()
    for name, value in changes.items():
        OmegaConf.update(config, name, value)
    with pytest.raises(UsageError) as found:
        check_settings(config)
    assert str(found.value).startswith(words)


@pytest.mark.parametrize("override", ["trainer=fsdp", "trainer=ddp", "trainer=default"])
def test_a_machine_with_a_gpu_has_what_the_trainers_need(monkeypatch, override):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    check_settings(
        compose("train", ["name=x", override, "trainer.precision=16-mixed", "compile=true"])
    )


@pytest.mark.parametrize(
    ("asked", "capabilities", "chosen"),
    [
        ("auto", {"avx512_bf16": True}, "bf16-mixed"),
        ("auto", {"amx_bf16": True}, "bf16-mixed"),
        ("auto", {"avx512_bf16": False, "avx2": True}, "32-true"),
        ("auto", {}, "32-true"),
        ("32-true", {"amx_bf16": True}, "32-true"),
        ("bf16", {}, "bf16-mixed"),
    ],
)
def test_auto_takes_bf16_where_the_processor_multiplies_it(
    config, monkeypatch, asked, capabilities, chosen
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    config = config.copy()
    OmegaConf.update(config, "trainer.precision", asked)
    check_settings(config)
    assert choose_precision(config.trainer) == chosen


def test_without_word_of_the_processor_auto_is_exact(config, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    config = config.copy()
    OmegaConf.update(config, "trainer.precision", "auto")
    assert choose_precision(config.trainer) == "32-true"
