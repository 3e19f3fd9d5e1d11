"""`pctx train` from a checkout."""

from pctx.cli.main import main

if __name__ == "__main__":
    # The arguments stay as they are: with them Lightning starts the other processes.
    main("train")
