"""A run under a budget of time: its schedule ends with the time, whatever the steps."""

import pytest
import torch

from pctx.engine import budget as budgets
from pctx.engine.budget import TimeBudget, parse_time
from pctx.engine.schedules import cosine, one_cycle


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when a test says so."""
    now = [100.0]
    monkeypatch.setattr(budgets.time, "monotonic", lambda: now[0])
    return now


class OneProcess:
    class strategy:
        broadcast = staticmethod(lambda value: value)


def look(budget):
    budget.on_train_batch_start(OneProcess(), None, None, 0)


@pytest.mark.parametrize("make", [one_cycle, cosine])
def test_the_rate_is_where_the_larger_share_of_steps_and_time_is(make, clock):
    plain = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    timed = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    here, there = make(plain, total_steps=100), make(timed, total_steps=100)
    budget = TimeBudget(102.0, start=100.0)  # 100 and the files at the end
    for step, second, place in [(1, 0.0, 1), (2, 30.0, 30), (60, 30.5, 60), (61, 400.0, 99)]:
        clock[0] = 100.0 + second
        look(budget)
        plain.step()
        timed.step()
        budget.move(there, step, 100)
        while here.last_epoch < place:
            here.step()
        assert timed.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
    assert timed.param_groups[0]["lr"] < 0.01


def test_time_spent_before_a_stop_counts(clock):
    first = TimeBudget(60.0, start=100.0)
    clock[0] = 125.0
    second = TimeBudget(60.0, start=clock[0])
    second.load_state_dict(first.state_dict())
    clock[0] = 130.0
    assert second.spent == 30.0


def test_a_time_is_days_hours_minutes_seconds():
    assert parse_time("00:00:03:00") == 180
    assert parse_time("01:02:03:04") == 93_784
    for text in ("3:00", "00:00:00:00", "soon", "180"):
        with pytest.raises(ValueError, match=f"trainer.max_time={text}"):
            parse_time(text)
