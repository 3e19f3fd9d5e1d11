"""The process that decompresses LAZ is the reader's own."""

import os
import subprocess
import sys

import pytest

from pctx.data.io.formats import read, write
from tests.toy import toy_cloud


@pytest.mark.skipif(sys.platform == "win32", reason="no groups of processes")
def test_a_signal_to_all_processes_of_a_job_leaves_the_decoder_at_work(tmp_path, monkeypatch):
    write(tmp_path / "a.laz", toy_cloud(600))
    groups = []

    class Seen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            groups.append(os.getpgid(self.pid))

    monkeypatch.setattr(subprocess, "Popen", Seen)
    assert len(read(tmp_path / "a.laz")) == 600
    assert groups and os.getpgid(0) not in groups
