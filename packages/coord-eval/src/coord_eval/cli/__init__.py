"""Takes the words of a command line, calls the public functions, prints text and returns an exit code."""

from coord_eval.cli.main import app

__all__ = ["app"]
