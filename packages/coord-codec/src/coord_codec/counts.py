"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    Args:
        count: the number
        noun: the noun of one, with its verb if there is one
        plural: that of several; by default the noun with an s

    Example:
        >>> counted(1, "box", "boxes"), counted(2, "box", "boxes"), counted(0, "image")
        ('1 box', '2 boxes', '0 images')
        >>> counted(1, "image has", "images have")
        '1 image has'
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
