"""The console command `pctx`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from difflib import get_close_matches

import typer

from pctx.cli import (
    benchmark,
    card,
    check,
    convert,
    demo,
    doctor,
    evaluate,
    export,
    info,
    predict,
    prepare,
    report,
    train,
    view,
)
from pctx.cli.config import UsageError, known_keys, known_options, namesakes, options_with, unquoted
from pctx.cli.stopping import INTERRUPTED, STOPPED, stoppable
from pctx.cli.streams import open_streams

app = typer.Typer(
    name="pctx",
    help="Point-cloud transformers: train on scans, label your own point clouds, see the result.",
    epilog="First steps:  pctx demo   ·   pctx predict model.pt scan.laz -o out.laz   ·   "
    "pctx view out.laz",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_STOPPED = "stopped; what was finished is kept"

_ON_PURPOSE = (ValueError, OSError, FloatingPointError, ImportError, RuntimeError)
_OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}

app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=train.EXAMPLES, context_settings=_OVERRIDES, options_metavar="[KEY=VALUE]")(
    train.train
)
app.command(epilog=evaluate.EXAMPLES, context_settings=_OVERRIDES, options_metavar="[KEY=VALUE]")(
    evaluate.evaluate
)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=view.EXAMPLES)(view.view)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=convert.EXAMPLES)(convert.convert)
app.command(epilog=export.EXAMPLES)(export.export)
app.command(epilog=info.EXAMPLES)(info.info)
app.command(epilog=card.EXAMPLES)(card.card)
app.command(epilog=prepare.EXAMPLES, context_settings=_OVERRIDES, options_metavar="[KEY=VALUE]")(
    prepare.prepare
)
app.command(epilog=check.EXAMPLES, context_settings=_OVERRIDES, options_metavar="[KEY=VALUE]")(
    check.check
)
app.add_typer(benchmark.app, name="benchmark")
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)


@app.callback(invoke_without_command=True)
def _version(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    if version:
        from pctx import __version__

        typer.echo(f"pctx {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(command: str | None = None) -> None:
    """Run the command line; every failure is one sentence on stderr and an exit code.

    Args:
        command: that all arguments are meant for.
    """
    open_streams()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # Threads that spin while they wait stall each other where another program is busy: a training
    # step was seen to take 17 to 50 s instead of 2. Read by OpenMP when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # oneDNN and torch's side of it keep what they compiled for each number of rows, another one for
    # each cloud: half a megabyte for each of the last 1024. Read when they first run.
    for cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(cache, "64")
    debug = os.environ.get("PCTX_DEBUG") == "1"
    if not debug:
        warnings.simplefilter("ignore")
    with stoppable() as stop_code:
        try:
            app(None if command is None else [command, *sys.argv[1:]])
        except (SystemExit, KeyboardInterrupt) as stop:
            # Of a Ctrl-C in the first moments, before the line is understood, nobody else takes
            # care.
            code = stop.code if isinstance(stop, SystemExit) else INTERRUPTED
            if code in STOPPED:
                _fail(_STOPPED, code)
            raise
        except Exception as error:
            if debug:
                raise
            if (code := stop_code()) is not None:  # and a library has made something else of it
                _fail(_STOPPED, code)
            if _is_hydras(error) and isinstance(error.__cause__, _ON_PURPOSE):
                error = error.__cause__  # raised by what Hydra was asked to make
            _fail(_sentence(error), _exit_code(error))


def _sentence(error: BaseException) -> str:
    """Say in one line what went wrong."""
    text = str(error)
    if "Original Traceback" in text:  # torch's word for what ended a loader's process
        last = text.strip().splitlines()[-1]
        text = last.partition(": ")[2] or last
    text = " ".join(text.split())
    if _is_hydras(error):
        override = getattr(error, "override", None)
        return unquoted(override) if override else _hydra_sentence(text)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if not isinstance(error, _ON_PURPOSE):
        return f"internal error: {type(error).__name__}: {text} (PCTX_DEBUG=1 shows where)"
    return text or type(error).__name__


def _hydra_sentence(text: str) -> str:
    text = text.split(" Config search path:")[0]
    if text.startswith("Could not override "):
        key = text.split("'")[1]
        group = key.rpartition(".")[0]
        others = [known for known in known_keys(group) if known != key]
        close = [*namesakes(key), *get_close_matches(key, others, n=1)]
        goes = [f"{group}={option}" for option in options_with(key)]
        hint = f"; it goes with {', '.join(goes)}" if goes else ""
        hint += f"; did you mean {close[0]!r}?" if close else ""
        return f"there is no key {key!r} in the configuration{hint} (--cfg job shows all)"
    if found := re.search(r"Could not (?:find|load) '(\S+)/([^/\s]+)'(?:.*?': (.*))?", text):
        group, option, listed = found.groups()
        there = listed.split() if listed else known_options(group)  # of a list Hydra names none
        close = get_close_matches(option, there, n=1)
        hint = f"did you mean {close[0]!r}? There" if close else "there"
        return f"there is no {group}={option}; {hint} are {', '.join(there)}"
    text, _, where = text.partition(" full_key: ")
    text = text.split(" See https://hydra.cc")[0]
    if "Missing mandatory value: " in text:
        key = text.split("Missing mandatory value: ")[1]
        return f"{key} is needed: add {key}=…"
    key = where.split(" ")[0]
    return text if key in text else f"{key}: {text}"


def _exit_code(error: BaseException) -> int:
    return 2 if _is_hydras(error) or isinstance(error, UsageError) else 1


def _is_hydras(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("hydra", "omegaconf")


def _fail(sentence: str, code: int) -> None:
    sys.stderr.write(f"pctx: {sentence}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
