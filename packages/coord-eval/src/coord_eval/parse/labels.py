"""Labels in free text: a label of its own loses list marks; of a sentence, the few words beside the numbers are one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_DANGLING = re.compile(r"<[A-Za-z_][\w.-]*\s*$")
"""The beginning of a tag whose attributes are the numbers."""
_TAG = re.compile(r"<\|?/?[A-Za-z_][\w.-]*(?:\s[^<>]{0,200})?\|?/?>|<\uff5c[^\uff5c<>]{1,40}\uff5c>|```(?:\w+)?")
_XML_FACTS = re.compile(
    r"<(filename|folder|path|source|database|pose|truncated|difficult|occluded|segmented|depth)>[^<>]*</\1>"
)
_EMPHASIS = re.compile(r"\*\*|__|`|(?<!\w)\*|\*(?!\w)|\\boxed\b")
_LEADING = re.compile(
    r"""(?:\s*(?:
        \#[0-9]{1,3}\b[.:)]?                # #1
      | [-*\u2022\u2013\u2014\u00b7\u30fb\u25aa\u25cf\u25cb\u25e6\u2023#>|&]+(?=\s|\w|$)  # bullets, headings, cells
      | \(?[0-9]{1,3}[.):\u3001](?![0-9])   # 1. 1) (1) 1:
      | \(?[IVX]{1,4}[.)](?=\s)             # I. (I)
      | [0-9]{1,3}\s*\|                     # the first cell of a table row
      | \(?[a-z]\)                          # a) (a)
      | [,;:.=\u2192|]+
    )\s*)+""",
    re.VERBOSE,
)
_SEPARATORS = r"\s:=,;|>\u2192\u27f6\u21d2\-\u2013\u2014~@(\[{"
_TRAILING = re.compile(rf"[{_SEPARATORS}]+$|\s*\.$")
_SEPARATED = re.compile(r"[:=|\u2192\u27f6\u21d2\-\u2013\u2014~@]\W*$")
"""A mark between a label and its numbers."""
_ROLE = re.compile(
    r"[\"'{]{0,3}(?:(?:my|the)\s+)?(?:assistant|ai|bot|model|answer|output|response|result|final answer|user|system"
    r"|text|content|label|class|object|name|category)[\"']?\s*[:=]\s*|mark\s*:\s*[0-9]+\s+",
    re.IGNORECASE,
)
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ('"', '"'), ("'", "'"))
_OPEN_QUOTES, _CLOSE_QUOTES = "\"'\u201c\u2018\u00ab", "\"'\u201d\u2019\u00bb"
_INSTANCE = re.compile(r"(.*?[^\s#0-9])\s*#?\s*([0-9]{1,3})")

_FEW = 3
"""Maximum number of words that a sentence gives as a label."""
_FEW_CHARACTERS = 6
"""Maximum number of characters of a certain label in a script without blanks."""
_ARTICLE = re.compile(r"(?:and\s+)?\b(?:an?|the|another|two|three|four|five|some|several)\s+|^and\s+", re.IGNORECASE)
_BREAK = re.compile(r"[.!?,;:]\s+|[\u3002\uff0c,\uff1a\uff1b]")
_AT = re.compile(r"(?:\s+(?:is|are))?(?:\s+located)?\s+at$|['\u2019]s$", re.IGNORECASE)
_CLAUSE = re.compile(
    r"\b(?:is|are|was|were|be|can|could|has|have|i|you|we|it|its|they|there|here|this|these|those|following|sure|yes|no)\b"
    r"|\b(?:at|in|on|of|to|from|by|with|for|as|or|and|located|found|box|boxes|bbox|bboxes|bounding|coordinates?|coords"
    r"|positions?|locations?|regions?|area|points?|format|objects?|detections?|results?|image|corners?|rectangle)$"
    r"|^(?:\w+\s+)?(?:bounding\s+box|bbox|box|coordinates?|positions?|locations?|area|cent(?:er|re))\b.*\s(?:of|for|around)\s"
    "|co?ord[eio]n|koordin|\u043a\u043e\u043e\u0440\u0434|englobant|delimit|begrenz|\uc88c\ud45c|\uc704\uce58|\u5ea7\u6a19|\u5750\u6807|\u4f4d\u7f6e|\u8fb9\u754c\u6846|[\u4e3a\u662f\u4e8e\u306f]$",
    re.IGNORECASE,
)
"""A word that no label contains, or with which none begins or ends."""
_ASIDE = re.compile(r"\([^()]*\)")
_UNSPACED = re.compile("[\u3040-\u30ff\u4e00-\u9fff\u0e00-\u0e7f]")


class Label(NamedTuple):
    """A label, and the repair that it took: `label_trimmed`, `label_from_sentence`, or "" for none."""

    text: str = ""
    repair: str = ""


NO_LABEL = Label()


@lru_cache(maxsize=4_096)  # each line is cleaned twice, and labels repeat within a set
def clean_label(words: str, running: bool = False, after: bool = False) -> Label:
    """Return the label that words beside numbers are or contain.

    Args:
        words: the words
        running: whether they stand within a sentence
        after: whether they stand after the numbers

    Example:
        >>> clean_label("2. **Red car** \u2014").text, clean_label("There is a vase").text, clean_label("We see it in")
        ('Red car', 'vase', Label(text='', repair='label_from_sentence'))
    """
    text = words
    if "<" in words or "`" in words:
        text = _DANGLING.sub(" ", _TAG.sub(" ", _XML_FACTS.sub(" ", words)))
    text = _EMPHASIS.sub("", text).strip()
    listed, trimmed = int(_SEPARATED.search(text) is not None), False
    if (lead := _LEADING.match(text)) and lead.end():
        trimmed = any(c.isalnum() for c in lead[0])
        listed += 2 * (lead[0].strip(" ,;.:=") != "")
        text = text[lead.end() :]
    if (role := _ROLE.match(text)) and role.end():
        trimmed, text = True, text[role.end() :]
    text = _strip(text)
    if "|" in text:  # cells of a table row: the last with words
        cells = [cell.strip() for cell in text.split("|")]
        named = [cell for cell in cells if any(map(str.isalpha, cell))]
        trimmed |= len(cells) > 1
        text = named[-1] if named else ""
    if not any(map(str.isalpha, text)):
        return Label(text, "label_trimmed" if trimmed and text else "")
    name = _name_in_sentence(text, listed, running, after)
    return (
        Label(text, "label_trimmed" if trimmed else "") if name is None else Label(_strip(name), "label_from_sentence")
    )


def _name_in_sentence(text: str, listed: int, running: bool, after: bool) -> str | None:
    """Return the few words of a sentence beside the numbers, "" where they are none; None for a label of its own.

    `listed` is 1 for a mark between words and numbers, 2 and more for one before the words, as lists have it.
    """
    article = _ARTICLE.search(text)
    pieces = [piece for piece in _BREAK.split(_ASIDE.sub(" ", text)) if piece.strip()] or [text]
    unspaced = _UNSPACED.search(text) is not None
    if _CLAUSE.search(text) is None and (
        (listed and ": " not in text and not (article and (article.start() == 0 or len(pieces) > 1)))
        or not (listed or running or article or len(pieces) > 1 or unspaced or len(text.split()) >= _FEW)
    ):
        long = len(text) > _FEW_CHARACTERS if unspaced else listed == 1 and len(text.split()) >= _FEW
        return text if long else None
    if unspaced:
        return ""
    name = _AT.sub("", pieces[0 if after else -1].strip())
    articles = list(_ARTICLE.finditer(name))
    if articles and (not listed or articles[0].start() == 0):
        name = name[articles[0 if listed or after else -1].end() :]
    few = listed or len(name.split()) <= _FEW
    return name if few and _CLAUSE.search(name) is None else ""


def _strip(text: str) -> str:
    """Return a label without separators, quotes and single brackets around it."""
    before = None
    while before != text:
        before = text
        if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
            text = text[1:-1]
        text = _TRAILING.sub("", text.strip())
        if len(text) > 1 and text[0] in _OPEN_QUOTES and text[-1] in _CLOSE_QUOTES:
            text = text[1:-1]
        text = text.lstrip(")]},; ")
        for opening, closing in _BRACKETS:
            lone = opening == closing and text.count(opening) == 1
            if text.startswith(opening) and (lone or closing not in text):
                text = text[1:]
            if text.endswith(closing) and (lone or opening not in text):
                text = text[:-1]
    return text


def is_heading(label: str) -> bool:
    """Return whether a line of words alone can be the label of what follows, and is no sentence."""
    return len(label.split()) <= 6 and not _CLAUSE.search(label) and any(map(str.isalpha, label))


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
    stems = {
        stem for stem, numbers in counted.items() if len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1))
    }
    return [found[1] if (found := _INSTANCE.fullmatch(label)) and found[1] in stems else label for label in labels]
