"""Words beside numbers: the label that they are, kept as written, or the refusal to take one from them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_TAG = re.compile(
    r"<\|?/?[A-Za-z_][\w.=-]*(?:\s[^<>]{0,200})?\|?/?>|<\uff5c[^\uff5c<>]{1,40}\uff5c>|<[A-Za-z_][^<>]{0,200}$"
)
_EMPHASIS = re.compile(r"\*\*|(?<!\w)__|__(?!\w)|```(?:\w+(?=\s))?|`|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)|\\boxed\b")
_LEADING = re.compile(
    r"""(?:\s*(?:
        \#{1,6}(?=\s) | \#[0-9]{1,3}\b[.:)]?             # headings, #1
      | [-*+>|&\u2013\u2014#](?=\s|$) | [\u2022\u00b7\u30fb\u25aa\u25cf\u25cb\u25e6\u2023]  # bullets, cells
      | \(?[0-9]{1,3}[.):\u3001](?![0-9])                # 1. 1) (1) 1:
      | \(?[IVX]{1,4}[.)](?=\s) | \(?[a-z]\)(?=\s)       # I. (I) a) (a)
      | [0-9]{1,3}\s*\|                                  # the first cell of a table row
    )\s*)+""",
    re.VERBOSE,
)
_ROLE = re.compile(
    r"[\"'{]{0,3}(?:(?:my|the)\s+)?(?:assistant|also|answer|output|response|result|final answer|text|content|label"
    r"|class|object|name|category|box|action)(?:\s?[0-9]{1,3})?[\"']?\s*[:=]\s*[\"']?|mark\s*:\s*[0-9]+\s*",
    re.IGNORECASE,
)
"""What stands before a label and names its kind alone."""
_ARTICLE = re.compile(
    r"(?i:(?:and\s+)?(?:an?|the|another|two|three|four|five|some|several)\s+)(?=[^\W\dA-Z])|(?i:and|also)\s+(?=\S)"
)
_BEFORE, _AFTER = (
    re.compile(r"^[\s,;:|=&.>\uff1a\uff0c\u3001]+|^[\"'][,;]\s|^[-\u2013\u2014\u2192\u27f6\u21d2~]+>?\s+"),
    re.compile(
        r"(?<=[:=])\s?[\"']$|[\s,;:|=@>~&\uff1a\uff0c\u2192\u27f6\u21d2\u2013\u2014]+$|\s-+$|(?<=\w)-+$|(?<=[^.\W].)\.$"
    ),
)
"""Marks between a label and its numbers."""
_CLAUSE = re.compile(
    r"\b(?:is|are|was|were|be|has|have|would|should|contains?|shows|encloses?|surrounds?|corresponds)\b"
    r"|^(?:there|here|this|these|that|it|its|i|we|you|they|he|she|sure|yes|both|please|let|based|after)\b(?=.*\s\S)"
    r"|^(?:at|in|on|of|to|from|by|for|as|and|or|to)\b"
    r"|\b(?:at|in|on|of|to|from|by|for|as|and|or|with|located|found|detected)$"
    r"|\b(?:bounding\s?box(?:es)?|bbox(?:es)?|coordinates?|location|position)(?:$|\s+(?:of|for)\b)"
    r"|['\u2019]s$|[!?]\s|\w{4,}\.\s|\u3002|[0-9]\s?%$|[0-9](?:[^\w\n]{1,4}[0-9.]+){2}"
    "|co?ord[eio]n|koordin|\u043a\u043e\u043e\u0440\u0434|englobant|\uc88c\ud45c|\uc704\uce58|\u5ea7\u6a19|\u5750\u6807"
    "|\u4f4d\u7f6e|\u8fb9\u754c\u6846|[\uff0c,].*[\u4e3a\u662f\u4e8e\u5728]$|[\u4e3a\u662f\u4e8e\u306f\u5728\ub294\uc740]$",
    re.IGNORECASE,
)
"""What a clause has and no label: a finite verb, a pronoun at its beginning, a preposition at an end, ..."""
_AT = re.compile(r"(?:\s+(?:is|are))?(?:\s+located)?\s+at$", re.IGNORECASE)
_SEPARATED = re.compile(r"[:=|\u2192\u27f6\u21d2\u2013\u2014~@\uff1a]\W*$|\s->?\W*$")
"""A mark between a label and its numbers, after which they are an entry of a list."""
_UNSPACED = re.compile("[\u3040-\u30ff\u4e00-\u9fff\u0e00-\u0e7f]")
_FEW_WORDS, _FEW_CHARACTERS = 4, 8
"""Most words, or characters of a script without blanks, of a label that no mark separates from its numbers."""
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
_QUOTES = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\u00ab", "\u00bb"))
_INSTANCE = re.compile(r"(.*?[^\s#0-9])\s*#?\s*([0-9]{1,3})")

_NAMED_BOX = re.compile(r"(.*[^\W\d_])\s+box(?:es)?", re.IGNORECASE)


class Label(NamedTuple):
    """A label, the repair that it took, "" for none, and whether it is refused, since the words name nothing."""

    text: str = ""
    repair: str = ""
    refused: bool = False

    @property
    def says(self) -> bool:
        """Whether the words say anything."""
        return bool(self.text) or self.refused


NO_LABEL, REFUSED = Label(), Label("", "label_from_sentence", True)


@lru_cache(maxsize=4_096)  # labels repeat within a set
def read_label(words: str, phrase: bool = False, listed: bool = False) -> Label:
    """Return the label that words beside numbers are, or a refusal.

    A label stays as written but for list marks, an article, separators, and brackets, quotes and marks around it.
    `listed` words and numbers are cells of a row, or lines of their own; a `phrase` of a sentence has the numbers
    right behind it: `a man[0.1,0.2,0.3,0.4] walks`.

    Example:
        >>> read_label("2. **Red car** \u2014").text, read_label("No helmet:").text, read_label("There is a vase at")
        ('Red car', 'No helmet', Label(text='', repair='label_from_sentence', refused=True))
    """
    text = _TAG.sub(" ", words) if "<" in words else words
    text = _EMPHASIS.sub("", text).strip().lstrip(")]},;. ")
    separated, repair = listed or _SEPARATED.search(text) is not None, ""
    lead = _LEADING.match(text)
    if lead and lead.end():
        separated |= lead[0].strip(" &") != ""
        repair = "label_trimmed" if any(map(str.isalnum, lead[0])) else ""
        text = text[lead.end() :]
    if role := _ROLE.match(text):
        repair, text = "label_trimmed", text[role.end() :]
    if lead and (place := _AT.search(text)):
        repair, text = "label_trimmed", text[: place.start()]  # - A man at [1, 2, 3, 4]
    if text[:1] in "\"'" and text.count(text[:1]) == 1:
        repair, text = "label_trimmed", text[1:]  # a quote that nothing closes
    colon = re.search(r"[:\uff1a]\W*$", text) is not None
    text = _bare(text)
    if "|" in text:  # cells of a table row: the one with words
        cells = [cell.strip() for cell in text.split("|") if any(map(str.isalpha, cell))]
        if len(cells) > 1:
            return REFUSED
        text, repair = (cells or [""])[0], "label_trimmed"
    if not any(map(str.isalpha, text)):
        return Label(text, repair) if any(map(str.isdigit, text)) else NO_LABEL
    if article := _ARTICLE.match(text):
        text, repair = text[article.end() :], "label_trimmed"
    if phrase:
        text = re.split(r"[.,;:!?]\s+", text)[-1]
        return REFUSED if _CLAUSE.search(text) else Label(text, "label_from_sentence")
    long = len(text) > _FEW_CHARACTERS if _UNSPACED.search(text) else len(text.split()) > _FEW_WORDS
    inner = (": " in text and not colon) or text.count("[") != text.count("]")
    if inner or _CLAUSE.search(text) or (long and not separated):
        return REFUSED
    return Label(text, repair)


def _bare(text: str) -> str:
    """Return a label without separators beside it, and without quotes and brackets around all of it."""
    before = None
    while before != text:
        before = text
        text = _AFTER.sub("", _BEFORE.sub("", text.strip())).lstrip(")]}").rstrip("([{<")
        for opening, closing in _BRACKETS:
            inside = text[1:-1]
            if text.startswith(opening) and text.endswith(closing) and opening not in inside and closing not in inside:
                text = inside
            if text.startswith(opening) and text.count(opening) != text.count(closing):
                text = text[1:]
            if text.endswith(closing) and text.count(opening) != text.count(closing):
                text = text[:-1]
        text = unquoted(text)
    return text


def unquoted(text: str) -> str:
    """Return a text without the quotes around all of it; `'a' and 'b'` has none."""
    for opening, closing in _QUOTES:
        inside = text[1:-1]
        if (
            len(text) > 1
            and text[0] == opening
            and text[-1] == closing
            and not re.search(rf"{closing}\s.*\s{opening}", inside)
        ):
            return inside
    return text


def as_written(text: str) -> str:
    """Return the value of a name in words without marks, quotes and brackets around all of it."""
    return _bare(_EMPHASIS.sub("", text))


def without_instance_numbers(labels: list[str]) -> list[str]:
    """Take off the numbers that only count the objects of one name: `person 1`, `person 2`, ...

    Example:
        >>> without_instance_numbers(["person 1", "person 2", "bus 42"])
        ['person', 'person', 'bus 42']
    """
    counted: dict[str, list[int]] = {}
    for label in labels:
        if found := _INSTANCE.fullmatch(label):
            counted.setdefault(found[1], []).append(int(found[2]))
    stems = {stem for stem, n in counted.items() if len(n) > 1 and n == list(range(1, len(n) + 1))}
    return [found[1] if (found := _INSTANCE.fullmatch(label)) and found[1] in stems else label for label in labels]


def without_common_box(labels: list[str]) -> list[str]:
    """Take off the word `box` with which all labels end: it names their numbers; that of one among others is its own.

    Example:
        >>> without_common_box(["dog box", "cat box"]), without_common_box(["dog", "red box"])
        (['dog', 'cat'], ['dog', 'red box'])
    """
    found = list(map(_NAMED_BOX.fullmatch, labels))
    return [match[1] for match in found if match] if len(labels) > 1 and all(found) else labels
