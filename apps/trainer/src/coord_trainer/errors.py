"""The two ways in which a run ends badly, told apart by their exit code."""


class InputError(Exception):
    """A mistake in the configuration, the command line or the data: exit code 2, no traceback."""


class RunError(Exception):
    """A run that started and could not finish (disk full, diverged, unreadable checkpoint): exit code 1."""
