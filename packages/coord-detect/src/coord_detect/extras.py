"""Says which extra of this package is missing, where a part of it needs packages that are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coord_codec import InputError


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Import within the block what an extra installs; `what` needs it.

    Raises:
        InputError: a package is missing; the message names it and the extra.

    Example:
        >>> with needs_extra("demo", "the demo"):  # doctest: +ELLIPSIS
        ...     import not_installed
        Traceback (most recent call last):
        coord_codec.files.InputError: the demo needs not_installed, which is not installed: pip install ...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == "coord_detect":
            raise
        raise InputError(
            f"{what} needs {missing}, which is not installed: pip install 'coord-detect[{extra}]'"
        ) from None
