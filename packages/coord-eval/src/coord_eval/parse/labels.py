"""Labels in free text: what of the words around numbers is the name of an object."""

from __future__ import annotations

import re
from functools import lru_cache

from coord_eval.parse.sentences import name_in_sentence, names_only_place

_DANGLING = re.compile(r"<[A-Za-z_][\w.-]*\s*$")
"""The beginning of a tag whose attributes are the numbers."""
_TAG = re.compile(r"<\|?/?[A-Za-z_][\w.-]*(?:\s[^<>]{0,200})?\|?/?>|<\uff5c[^\uff5c<>]{1,40}\uff5c>|```(?:\w+)?")
_XML_FACTS = re.compile(
    r"<(filename|folder|path|source|database|pose|truncated|difficult|occluded|segmented|depth)>[^<>]*</\1>"
)
_EMPHASIS = re.compile(r"\*\*|__|`|(?<!\w)\*|\*(?!\w)")
_LEADING = re.compile(
    r"""(?:\s*(?:
        \#[0-9]{1,3}\b[.:)]?                # #1
      | [-*\u2022\u2013\u2014\u00b7\u30fb\u25aa\u25cf\u25cb\u25e6\u2023#>|&]+(?=\s|\w|$)  # bullets, headings, cells
      | \(?[0-9]{1,3}[.):\u3001](?![0-9])   # 1. 1) (1) 1:
      | \(?[IVX]{1,4}[.)](?=\s)            # I. (I)
      | [0-9]{1,3}\s*\|                     # the first cell of a table row
      | \(?[a-z]\)                          # a) (a)
      | [,;:.=\u2192|]+
    )\s*)+""",
    re.VERBOSE,
)
_TRAILING = re.compile(
    r"[\s:=,;|>\u2192\u27f6\u21d2\-\u2013\u2014~@(\[{]+$|\s*\.$|[\s:]*\b(?:starts?|begins?)\s+(?:at|from)$"
)
_ROLE = re.compile(
    r"(?:(?:my|the)\s+)?(?:assistant|ai|bot|model|answer|output|response|result|final answer|user|system"
    r"|label|class|object|name|category)\s*[:=]\s*|mark\s*:\s*[0-9]+\s+",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"(?:an?|the|his|her|its|their|another|two|three|four|some|several)\s", re.IGNORECASE)
_PHRASE = re.compile(rf"(?:[a-z]+\s+){{1,4}}?(?={_ARTICLE.pattern})")
"""Words of a caption between the object before and the article of the next one."""
_SENTENCE = re.compile(
    r"\b(?:is|are|was|were|here|sure|following|found|detected|image|i|can|this|these|there|below|provided|answer|output|"
    r"objects?|detections?|bounding|boxes|coordinates|json|format|results?|list|based|assistant|user|thought|action)\b",
    re.IGNORECASE,
)
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ('"', '"'), ("'", "'"))
_OPEN_QUOTES, _CLOSE_QUOTES = "\"'\u201c\u2018\u00ab", "\"'\u201d\u2019\u00bb"
_INSTANCE = re.compile(r"(.*?[^\s#0-9])\s*#?\s*([0-9]{1,3})")


@lru_cache(maxsize=4_096)  # each line is cleaned twice, and labels repeat within a set
def clean_label(words: str) -> tuple[str, bool]:
    """Return a label without list numbers, marks and the sentence around it, and whether words or numbers went.

    Example:
        >>> clean_label("2. **Red car** \u2014"), clean_label("The bounding box of the dog is")
        (('Red car', True), ('dog', True))
    """
    text = words
    if "<" in words or "`" in words:
        text = _DANGLING.sub(" ", _TAG.sub(" ", _XML_FACTS.sub(" ", words)))
    if "\n" in text:
        text = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    text = _EMPHASIS.sub("", text).strip()
    trimmed = False
    if (lead := _LEADING.match(text)) and lead.end():
        trimmed = any(c.isalnum() for c in lead[0])
        text = text[lead.end() :]
    if (role := _ROLE.match(text)) and role.end():
        trimmed, text = True, text[role.end() :]
    text = _strip(text)
    if "|" in text:  # cells of a table row: the last with words
        cells = [cell.strip() for cell in text.split("|")]
        named = [cell for cell in cells if any(map(str.isalpha, cell))]
        trimmed |= len(cells) > 1
        text = named[-1] if named else ""
    name = name_in_sentence(text)
    return (text, trimmed) if name is None else (_strip(name), True)


def phrase_of_caption(label: str, with_article: bool = True) -> str:
    """Return the words from their article on (or after it), of words between two objects of one sentence.

    Example:
        >>> phrase_of_caption("lying on a couch"), phrase_of_caption("the man with the hat"), phrase_of_caption("roses")
        ('a couch', 'the man with the hat', 'roses')
    """
    lead = None if _ARTICLE.match(label) else _PHRASE.match(label)
    phrase = label[lead.end() :] if lead else label
    article = None if with_article else _ARTICLE.match(phrase)
    return phrase[article.end() :] if article else phrase


def is_phrase(label: str) -> bool:
    """Return whether a label begins with an article, as in captions."""
    return _ARTICLE.match(label) is not None


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
    return "" if names_only_place(text) else text


def is_heading(label: str) -> bool:
    """Return whether a line of words alone can be the label of what follows, and is no sentence."""
    return bool(label) and len(label.split()) <= 6 and not _SENTENCE.search(label) and any(map(str.isalpha, label))


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
    if not stems:
        return labels
    return [found[1] if (found := _INSTANCE.fullmatch(label)) and found[1] in stems else label for label in labels]
