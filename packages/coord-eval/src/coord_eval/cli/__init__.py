"""The command line: parses arguments, calls the public functions, prints results and returns an exit code."""

from coord_eval.cli.main import app

__all__ = ["app"]
