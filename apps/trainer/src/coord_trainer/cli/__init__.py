"""`uv run apps/trainer`: parses the command line, calls the public functions, returns an exit code."""

from coord_trainer.cli import about, answering, data, reviewing, training
from coord_trainer.cli.main import app, main

__all__ = ["about", "answering", "app", "data", "main", "reviewing", "training"]
