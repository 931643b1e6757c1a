"""The one error a user's input can cause."""


class InputError(ValueError):
    """A file or value that cannot be scored; the message names it, what was expected and what to do."""
