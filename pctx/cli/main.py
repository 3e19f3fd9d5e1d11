"""The console command `pctx`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import typer

from pctx.cli import demo, doctor, evaluate, info, predict, train, view

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
_OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}

app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=train.EXAMPLES, context_settings=_OVERRIDES, options_metavar="[OVERRIDES]")(
    train.train
)
app.command(epilog=evaluate.EXAMPLES, context_settings=_OVERRIDES, options_metavar="[OVERRIDES]")(
    evaluate.evaluate
)
app.command(epilog=predict.EXAMPLES)(predict.predict)
app.command(epilog=view.EXAMPLES)(view.view)
app.command(epilog=info.EXAMPLES)(info.info)
app.command()(doctor.doctor)


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


def main() -> None:
    """Run the command line; every failure is one sentence on stderr and an exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    debug = os.environ.get("PCTX_DEBUG") == "1"
    if not debug:
        warnings.simplefilter("ignore")
    try:
        app()
    except KeyboardInterrupt:
        _fail("stopped; what was finished is kept", 130)
    except Exception as error:
        if debug:
            raise
        _fail(_sentence(error), _exit_code(error))


def _sentence(error: BaseException) -> str:
    """Take the innermost cause that was raised on purpose, in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyError | AssertionError | TypeError | AttributeError | IndexError):
        return f"internal error: {type(error).__name__}: {text} (PCTX_DEBUG=1 shows where)"
    return text or type(error).__name__


def _exit_code(error: BaseException) -> int:
    hydra = type(error).__module__.split(".")[0] in ("hydra", "omegaconf")
    return 2 if hydra else 1


def _fail(sentence: str, code: int) -> None:
    sys.stderr.write(f"pctx: {sentence}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
