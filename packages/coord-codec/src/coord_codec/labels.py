"""Comparison of labels that differ in case, separators or punctuation alone."""

from __future__ import annotations

import unicodedata


def normalize_label(label: str) -> str:
    """Return the label in NFKC, case-folded, with each run of `_`, `-` and white space replaced by one space.

    Example:
        >>> normalize_label("Traffic_Light.")
        'traffic light'
    """
    folded = unicodedata.normalize("NFKC", label).casefold()
    return " ".join(folded.replace("_", " ").replace("-", " ").split()).strip(" .,;:!\"'")
