import sys

import pytest

from pctx.cli.main import main


@pytest.fixture
def pctx(monkeypatch, tmp_path, capsys):
    """Run a command in an empty folder; give exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pctx", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
