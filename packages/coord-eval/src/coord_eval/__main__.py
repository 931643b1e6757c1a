"""`python -m coord_eval`: the same as the `coord-eval` command."""

import sys

from coord_eval.cli.main import main

sys.exit(main())
