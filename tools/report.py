"""`pctx report` from a checkout."""

import sys

from pctx.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "report")
    main()
