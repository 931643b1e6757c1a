"""Recognises answers that say in words that there is no object: `None`, `There is no dog`, `Es gibt keinen Hund`."""

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
_PICTURE = r"(?!\s+(?:bild|foto|image|photo|imagen|imagem|immagine))"
_NEGATIONS = {
    "German": rf"\bkein(?:e[nrms]?)?\b{_PICTURE}|\bnicht\s+(?:gefunden|vorhanden|sichtbar|zu\ sehen)\b",
    "French": rf"\baucune?\b{_PICTURE}|\bn['\u2019]y\s+a\s+pas\b|\bpas\s+(?:visible|pr\u00e9sente?|trouv\u00e9e?)s?\b",
    "Spanish": rf"\bno\s+(?:hay|existen?|aparecen?|se\s+(?:ven?|encuentra\w*|detect\w+|encontr\w+))\b{_PICTURE}"
    rf"|\bning[u\u00fa]n(?:a|o)?\b{_PICTURE}",
    "Portuguese": rf"\bn\u00e3o\s+(?:h\u00e1|existem?|aparecem?|foi|foram)\b{_PICTURE}|\bnenhuma?\b{_PICTURE}",
    "Italian": rf"\bnon\s+(?:c['\u2019]\u00e8|ci\s+sono|\u00e8\s+presente)|\bnessun[oa]?\b{_PICTURE}",
    "Russian": r"\b\u043d\u0435\u0442\b|\b\u043d\u0435\s+(?:\u043d\u0430\u0439\u0434|\u043e\u0431\u043d\u0430\u0440)",
    "Chinese": "\u6ca1\u6709|\u672a(?:\u68c0\u6d4b|\u53d1\u73b0|\u627e\u5230)|\u4e0d\u5b58\u5728|^\\W*\u65e0\\W*$",
    "Japanese": "(?:\u3042\u308a|\u3044|\u898b\u3064\u304b\u308a|\u5199\u3063\u3066\u3044)\u307e\u305b\u3093",
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
    | \b(?:there\s+(?:isn|aren|wasn|weren)['\u2019]t)\b
    | \b(?:cannot|can['\u2019]?t|could(?:\ not|n['\u2019]t)|do(?:es)?(?:\ not|n['\u2019]t)|did(?:\ not|n['\u2019]t)
      |(?:un|not\ )able\ to|failed\ to)\s+(?:\w+\s+){{0,2}}?
      {_SEEN})\b(?!\s+(?:this|the|an?|any|your)\s+(?:image|picture|photo))
    | \b(?:not|isn['\u2019]t|aren['\u2019]t|never)\s+(?:\w+\s+){{0,2}}?
      {_SEEN}|detected|shown|depicted|identified|included|in\ (?:the|this)\ (?:image|picture|photo|scene))\b
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
