"""What a terminal shows of a run."""

import contextlib
import fcntl
import logging
import os
import re
import struct
import termios
import threading
import time
from functools import partial

import pytest
import pytorch_lightning as pl

from pctx.engine.progress import Bar, Pace, span
from tests.engine.test_run_length import data, module, trainer_for

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning gives advice by warnings


class Stop(pl.Callback):
    """Takes its time, tells something in the fourth step, and ends the run there."""

    def on_train_batch_end(self, trainer, *_):
        time.sleep(0.12)  # a bar is drawn every tenth of a second
        if trainer.global_step == 4:
            logging.getLogger("pctx").warning("a step is skipped")
            raise RuntimeError("that was all")


@pytest.fixture
def drawn(caplog):
    """Give what a terminal of so many columns gets while a function draws on it."""
    caplog.set_level(logging.WARNING, "pytorch_lightning")  # which has tips, as lines

    def draw(columns, function):
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        pieces = []

        def read():
            while True:
                try:
                    pieces.append(os.read(ours, 4096))
                except OSError:  # nobody has the other end any more
                    return

        reader = threading.Thread(target=read)
        reader.start()
        try:
            with os.fdopen(theirs, "w") as terminal:
                function(terminal)
        finally:
            reader.join()
            os.close(ours)
        return b"".join(pieces).decode()

    return draw


def train(folder, terminal, *, epochs):
    pace = Pace()
    trainer = trainer_for(folder, max_epochs=epochs, callbacks=[pace, Bar(pace), Stop()])
    handler = logging.StreamHandler(terminal)
    logging.root.addHandler(handler)
    try:
        with contextlib.redirect_stderr(terminal):
            trainer.fit(module(), datamodule=data(2))
    finally:
        logging.root.removeHandler(handler)


@pytest.mark.parametrize("columns", [40, 80])
def test_a_bar_fits_into_its_line_and_says_what_is_left(columns, drawn, tmp_path):
    text = drawn(columns, partial(train, tmp_path, epochs=1))
    rows = [row for row in re.split(r"[\r\n]", text) if row.strip()]
    told = [row for row in rows if row.startswith("epoch 1/1  ")]  # others are the log's
    assert told and not [row for row in told if len(row) > columns]
    assert any(re.search(r"[12]/3", row) and re.search(r"\d+ s left", row) for row in told), told
    assert (columns == 40) or any("loss" in row and "points/s" in row for row in told)


def test_a_run_that_fails_leaves_no_bar_behind_and_its_log_stands_above(drawn, tmp_path):
    def fails(terminal):
        with pytest.raises(RuntimeError, match="that was all"):
            train(tmp_path, terminal, epochs=3)
        terminal.write("last words\n")

    text = drawn(80, fails)
    assert "a step is skipped" in re.split(r"[\r\n]+", text)
    assert re.search(r"\r {60,}\r(last words)\r\n$", text)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")]
)
def test_times_are_written_short(seconds, words):
    assert span(seconds) == words
