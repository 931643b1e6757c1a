"""Text from a model or a file, made safe for HTML."""

from __future__ import annotations

from html import escape


def safe(value: object, keep: str = "") -> str:
    r"""Escape for content and attributes.

    Control, bidirectional and surrogate characters are written out as ``\u202e``, so that nothing in an answer can
    rearrange the page around it; those in ``keep`` stay.
    """
    return escape("".join(c if c.isprintable() or c in keep else f"\\u{ord(c):04x}" for c in str(value)))
