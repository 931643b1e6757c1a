"""Recognises answers that say in words that there is no object: `None`, `There is no dog`, `Es gibt keinen Hund`."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

NOTHING = frozenset(("null", "none", "nan", "n/a", "na", "nil", "nothing", "empty", "undefined", "no"))
"""Words that are a whole answer, or the value of a key, where there is no object."""
_MOST = 400
"""Number of characters of the longest answer that only says that there is no object."""
_SEEN = (
    "(?:see|find|detect|locate|identify|spot|contain|show|appear|exist|depict|include|feature|have|visible|present"
    "|found"
)
_PICTURE = r"(?!\s+(?:bild|foto|image|photo|imagen|imagem|immagine))"
_NEGATIONS = {
    "German": rf"\bkein(?:e[nrms]?)?\b{_PICTURE}|\bnicht\s+(?:gefunden|vorhanden|sichtbar|zu\ sehen)\b",
    "French": rf"^\W*pas\s+d|\baucune?\b{_PICTURE}|\bn['\u2019]y\s+a\s+pas\b"
    r"|\bpas\s+(?:visible|pr\u00e9sente?|trouv\u00e9e?)s?\b",
    "Spanish": rf"\bno\s+(?:hay|existen?|aparecen?|se\s+(?:ven?|encuentra\w*|detect\w+|encontr\w+))\b{_PICTURE}"
    rf"|\bning[u\u00fa]n(?:a|o)?\b{_PICTURE}",
    "Portuguese": rf"\bn\u00e3o\s+(?:h\u00e1|existem?|aparecem?|foi|foram)\b{_PICTURE}|\bnenhuma?\b{_PICTURE}",
    "Italian": rf"\bnon\s+(?:c['\u2019]\u00e8|ci\s+sono|\u00e8\s+presente)|\bnessun[oa]?\b{_PICTURE}",
    "Dutch": rf"\bgeen\b{_PICTURE}",
    "Danish, Norwegian, Swedish": r"\bing(?:en|et|a)\b",
    "Russian": r"\b\u043d\u0435\u0442\b|\b\u043d\u0435\s+(?:\u043d\u0430\u0439\u0434|\u043e\u0431\u043d\u0430\u0440)",
    "Chinese": "\u6ca1\u6709|\u672a(?:\u68c0\u6d4b|\u53d1\u73b0|\u627e\u5230)|\u4e0d\u5b58\u5728|^\\W*\u65e0\\W*$",
    "Japanese": "\u8a72\u5f53\u306a\u3057"
    "|(?:\u3042\u308a|\u3044|\u898b\u3064\u304b\u308a|\u5199\u3063\u3066\u3044)\u307e\u305b\u3093",
    "Korean": "\uc5c6(?:\uc2b5\ub2c8\ub2e4|\uc5b4\uc694|\uc74c|\ub2e4)",
}
"""Sentences of other languages that say that there is none; one about the picture itself is none."""
_REFUSAL = re.compile(
    rf"""
      ^\W*(?:{"|".join(sorted(map(re.escape, NOTHING), key=len, reverse=True))})\W*$
    | ^\W*(?:sorry\W{{1,3}})?(?:there\s+(?:is|are|was|were)\s+)?  # No dog found.
      (?:no|none|zero|0)\b(?!\s+(?:image|picture|photo|(?:se\ )?pued)\w*)(?:\s+of\b)?[^.,;:!?\n]{{0,80}}\W*$
    | \b(?:is|are|was|were|'s|seems?\ to\ be|appears?\ to\ be|see|find|found|detected?|contains?|shows?|has|have)\s+
      (?:no|none|nothing|zero)\b
    | \bthere(?:\s+(?:isn|aren|wasn|weren)['\u2019]t|['\u2019]re\s+no)\b | ^\W*neither\b | ^\W*not\ applicable\W*$
    | \b(?:cannot|can['\u2019]?t|could(?:\ not|n['\u2019]t)|do(?:es)?(?:\ not|n['\u2019]t)|did(?:\ not|n['\u2019]t)
      |(?:un|not\ )able\ to|failed\ to)\s+(?:\w+\s+){{0,2}}?
      {_SEEN})\b(?!\s+(?:this|the|an?|any|your)\s+(?:image|picture|photo))
    | \b(?:not|isn['\u2019]t|aren['\u2019]t|never)\s+(?:\w+\s+){{0,2}}?
      {_SEEN}|there|detected|shown|depicted|identified|included|in\ (?:the|this)\ (?:image|picture|photo|scene))\b
    | \b(?:is|are)\s+(?:absent|missing)\b
    | {"|".join(_NEGATIONS.values())}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BUT = re.compile(
    r"\b(?:but|however|although|except|instead|other than|aber|sondern|mais|pero|sino|mas|ma|\u043d\u043e)\b|\u4f46",
    re.IGNORECASE,
)
"""What comes before something else that there is."""


_ABSENT = re.compile(
    rf"\W*[^:\n]{{1,80}}[:=]\s*(?:{'|'.join(map(re.escape, sorted(NOTHING)))}|not (?:found|present|visible))\W*",
    re.IGNORECASE,
)
"""A line with the name of an object and a word for nothing."""
_MARKS = re.compile(r"```\w*|</?(?!none)\w{1,20}>|^\W*(?:I['\u2019]m\s+|I\s+am\s+)?sorry\W+(?:but\s+)?", re.IGNORECASE)
"""Fences, tags and courtesies around the answer."""
_DIGITS = re.compile("[0-9]+")
_FEW_NUMBERS = 3
"""Most numbers of a sentence, of which a box would have more."""
_NO_WORDS = re.compile(r"[\s\"'\u201c\u201d\u2018\u2019.\u2013\u2014-]+")


def says_nothing(text: str) -> bool:
    """Return whether a text without any coordinates says that there is no object.

    Example:
        >>> [says_nothing(text) for text in ("None", "There is no dog.", "I cannot see the image.", "A dog.")]
        [True, True, False, False]
    """
    text = _MARKS.sub(" ", text).strip()
    if not 0 < len(text) <= _MOST or _BUT.search(text) or len(_DIGITS.findall(text)) > _FEW_NUMBERS:
        return False
    if _NO_WORDS.fullmatch(text):
        return True
    return _REFUSAL.search(text) is not None or all(map(_ABSENT.fullmatch, text.splitlines()))


def is_nothing(text: str) -> bool:
    """Return whether a text is JSON in which no key has a value: `{"count": 0, "dogs": []}`, `{"error": "No dog."}`.

    Example:
        >>> is_nothing('{"found": false}'), is_nothing("{'dog': None}"), is_nothing('{"dog": 3}')
        (True, True, False)
    """
    text = _MARKS.sub(" ", text).strip()
    for written in (text, text.replace("None", "null").replace("'", '"')):
        with suppress(ValueError, RecursionError):
            return _is_empty(json.loads(written))
    return False


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value or says_nothing(value)
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return all(map(_is_empty, value)) if isinstance(value, list) else not value
