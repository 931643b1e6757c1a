"""Recognises answers that say in words that there is no object: `None`, `There is no dog in the image`."""

from __future__ import annotations

import re

NOTHING = frozenset(("null", "none", "nan", "n/a", "na", "nil", "nothing", "empty", "undefined", "no"))
"""Words that are a whole answer, or the value of a key, where there is no object."""
_MOST = 400
"""Number of characters of the longest answer that only says that there is no object."""
_SEEN = (
    "(?:see|find|detect|locate|identify|spot|contain|show|appear|exist|depict|include|feature|have|visible|present"
    "|found"
)
_REFUSAL = re.compile(
    rf"""
      ^\W*(?:{"|".join(sorted(map(re.escape, NOTHING), key=len, reverse=True))})\W*$
    | ^\W*(?:sorry\W{{1,3}})?(?:there\s+(?:is|are|was|were)\s+)?  # No dog found.
      (?:no|none|zero|0)\b(?:\s+of\b)?[^.,;:!?\n]{{0,80}}\W*$
    | \b(?:is|are|was|were|'s|seems?\ to\ be|appears?\ to\ be|see|find|found|detected?|contains?|shows?|has|have)\s+
      (?:no|none|nothing|zero)\b
    | \b(?:there\s+(?:isn|aren|wasn|weren)['\u2019]t)\b
    | \b(?:cannot|can['\u2019]?t|could(?:\ not|n['\u2019]t)|do(?:es)?(?:\ not|n['\u2019]t)|did(?:\ not|n['\u2019]t)
      |(?:un|not\ )able\ to|failed\ to)\s+(?:\w+\s+){{0,2}}?
      {_SEEN})\b(?!\s+(?:this|the|an?|any|your)\s+(?:image|picture|photo))
    | \b(?:not|isn['\u2019]t|aren['\u2019]t|never)\s+(?:\w+\s+){{0,2}}?
      {_SEEN}|detected|shown|depicted|identified|included|in\ (?:the|this)\ (?:image|picture|photo|scene))\b
    | \b(?:is|are)\s+(?:absent|missing)\b
    | \u6ca1\u6709|\u672a(?:\u68c0\u6d4b|\u53d1\u73b0|\u627e\u5230)|\u4e0d\u5b58\u5728|^\W*\u65e0\W*$
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BUT = re.compile(r"\b(?:but|however|although|except|instead|other than)\b|\u4f46", re.IGNORECASE)
"""What comes before something else that there is."""


_ABSENT = re.compile(
    rf"\W*[^:\n]{{1,80}}[:=]\s*(?:{'|'.join(map(re.escape, sorted(NOTHING)))}|not (?:found|present|visible))\W*",
    re.IGNORECASE,
)
"""A line with the name of an object and a word for nothing."""
_FENCE = re.compile(r"```\w*")


def says_nothing(text: str) -> bool:
    """Return whether a text without any coordinates says that there is no object.

    Example:
        >>> [says_nothing(text) for text in ("None", "There is no dog.", "I cannot see the image.", "A dog.")]
        [True, True, False, False]
    """
    text = _FENCE.sub("", text).strip()
    if not 0 < len(text) <= _MOST or _BUT.search(text):
        return False
    return _REFUSAL.search(text) is not None or all(map(_ABSENT.fullmatch, text.splitlines()))
