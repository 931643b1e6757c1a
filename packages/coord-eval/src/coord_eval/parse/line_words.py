"""Reads the words beside a value: a confidence, `label: cat`, the key of the numbers after them, else a label."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coord_eval.parse.keys import ACTIONS, BOX_WORDS, KEYS, PLACES, Keys
from coord_eval.parse.line_values import Item
from coord_eval.parse.numbers import NUMBER
from coord_eval.parse.record import Field
from coord_eval.parse.words import NO_LABEL, Label, as_written, read_label

_CONTENT = re.compile(r"\s*/?>\s*(?:<\w{1,20}>)?\s*([^<>]{1,80}?)\s*</[\w.-]{0,30}\s*>?")
"""The text of an element, after its attributes."""
_CORNER = re.compile(
    r"[\s\"'*_`(-]*\b(?:the\s+)?(top|upper|bottom|lower)[\s_-]*(left|right)\b"
    r"(?:\s+(?:corner|point|is|at|of)\b[^.,;:()\n0-9]{0,30})?[\s\"'*_`:=(-]*$",
    re.IGNORECASE,
)
_WORDS_OF_BOX = "|".join(word.replace("_", r"[\s_-]?") for word in sorted(BOX_WORDS, key=len, reverse=True))
_TOKEN, _TOKENS_OF_BOX = re.compile("[a-z]+"), {part for word in BOX_WORDS for part in word.split("_")}
_FORMAT = r"(?:\s?\([a-z ,_0-9]{3,30}\))?"
_OPENING = r"[\s\"'*_`:=(\[{-]*"
_BOX_WORD = re.compile(
    rf"(?:(?<!\w)|(?<=[\u4e00-\u9fff\uac00-\ud7a3]))(?P<word>{_WORDS_OF_BOX}){_FORMAT}\)?{_OPENING}"
    rf"(?:\b(?:is|are|at|of|as)\b{_OPENING})?$",
    re.IGNORECASE,
)
"""A word of the box before its numbers."""
_BOX_OF = re.compile(
    rf"[\s\"'*_`#>-]*(?:the\s+)?({_WORDS_OF_BOX}){_FORMAT}\s+(?:of|for|around|von|des|de|du|del|da|do|di)\s+"
    r"(?:the\s+|an?\s+)?((?:(?!\b(?:on|in|at|from|with|near|by|that|which|to|is|are)\b)[^.,;:!?()]){1,60}?)"
    rf"[\s\"'*_`]*(?::|=|\bis\b|\bare\b|\bat\b)?{_OPENING}",
    re.IGNORECASE,
)
_MAY_BE_OBJECT = re.compile(r"box(?:es)?", re.IGNORECASE)
"""A word of the box that may be the object, if no mark stands before it: `red box`."""
_JOINTS = re.compile(
    r"(?:[-=]>|[\s,;|:=*_`\"'([{\u2013\u2014\u2192\u27f6\u21d2\uff0c\uff1a\u7684\u306e\uc758-]"
    r"|\b(?:with|at|in|has|its|the|an?|and|their)\b|['\u2019]s\b)+$",
    re.IGNORECASE,
)
"""What joins a label and a word of the box after it."""
_MARK = re.compile(r"[,;|:=(>\u2013\u2014\u2192\u27f6\u21d2-]")
_SEGMENT = re.compile(r"[,;|(\u2013\u2014:]|\s-\s")
_PIECE = re.compile(r"[,;|(\u2013\u2014]?[^,;|(\u2013\u2014]+|[,;|(\u2013\u2014]")
FIELD = re.compile(r"[\s\"'*_`({-]*([^\W\d][\w \-]{0,28}?)[\"'*_`]*\s*[:=]\s*(.*)", re.DOTALL)
"""A name and its value."""
_SHARE = rf"(?:[0-9]{{1,3}},[0-9]{{1,4}}(?![\w.]|,[0-9])|{NUMBER})"
_SCORES = (
    re.compile(
        rf"[(\[,;|]?\s*(?:with\s+)?(?:a\s+)?\b(?:{'|'.join(KEYS['score'])})\s*(?:of\s*)?[:=]?\s*\[?\s*({_SHARE})\s*(%?)"
        r"\s*[)\]]?",
        re.IGNORECASE,
    ),
    re.compile(r"\(\s*(0?\.[0-9]{1,9}|1\.0{1,9}|[0-9]{1,3}(?:\.[0-9]{1,9})?(?=\s*%))\s*(%?)\s*\)"),
    re.compile(r"(?<=[^\W\d_])[\s:,|]+(0?\.[0-9]{2,9}|1\.00{1,8})\s?(%?)\s*[:,|]?\s*$"),
    re.compile(r"(?<=[^\W\d_])[\"'*`)]{0,3}\s*:\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s?(%)(?=[\s,:(\[-]*$)"),
    re.compile(r"^[\s,;|]*(0?\.[0-9]{1,9}|1\.0{1,9}|[0-9]{1,3}(?:\.[0-9]{1,9})?(?=\s?%))\s?(%?)\s*$"),
)
"""A confidence with its name, in brackets, after a label, `person 0.98`, `person: 98%`, or behind the numbers."""
_NOISE = re.compile(r"^[\s\"'*_`(\[{>|.-]+|[\s\"'*_`:=)({\[-]+$|\bthe\b", re.IGNORECASE)
_SYMBOLS = re.compile(r"[\[(]?\s*[xywhc]\w{0,9}(?:\s*,\s*[xywhc]\w{0,9}){3}\s*[\])]?\s*[=:]?\s*", re.IGNORECASE)
"""The names of four numbers, beside them."""


def without_score(words: str) -> tuple[str, list[Field]]:
    """Return words without the confidences among them, and the first of these.

    Example:
        >>> without_score("red car (0.87): ")[0], without_score("red car, score 90%")[1][0].text
        ('red car  : ', '90%')
    """
    scores: list[Field] = []
    for pattern in _SCORES if any(map(str.isdigit, words)) else ():
        if found := pattern.search(words):
            scores.append(Field("score", text=f"{found[1]}{found[2]}", done=True))
            words = pattern.sub(" ", words)
    return words, scores[:1]


def without_fields(words: str, keys: Keys, before_value: bool) -> tuple[str, list[Field]]:
    """Return words without `label: cat`, and the fields, each with all that follows up to the next name.

    `before_value`: whether a name at the end is that of a value after the words.
    """
    if ":" not in words and "=" not in words:
        return words, []
    kept, fields = "", list[Field]()
    pieces = _PIECE.findall(words)
    for number, piece in enumerate(pieces):
        match = FIELD.fullmatch(piece.lstrip(",;|(\u2013\u2014"))
        names_value = before_value and number == len(pieces) - 1 and piece.rstrip(" \"'`*").endswith((":", "="))
        if match and match[2].strip() and not names_value and keys[match[1]].role == "label":
            fields.append(Field(match[1], text=match[2], done=True))
        elif fields and not (match or names_value or kept) and piece.strip():
            fields[-1].text = f"{fields[-1].text}{piece}"
        else:
            kept += piece
    for item in fields:
        item.text = as_written(item.text or "")
    return kept, fields


def key_at_end(words: str, keys: Keys) -> tuple[str, str]:
    """Return the key that names the numbers after these words, "" if none does, and the words before it.

    Example:
        >>> key_at_end("a red car, bounding box: ", Keys("box")), key_at_end("The location of the dog is ", Keys("box"))
        (('bounding_box', 'a red car:'), ('location', 'dog'))
    """
    if corner := _CORNER.search(words):
        return f"{corner[1]}_{corner[2]}".lower(), words[: corner.start()]
    if not (words.isascii() and _TOKENS_OF_BOX.isdisjoint(_TOKEN.findall(words.lower()))):
        if of := _BOX_OF.fullmatch(words):
            return _key_of_word(of[1], keys), of[2]
        named = _BOX_WORD.search(words)
        before = _JOINTS.sub("", words[: named.start()]) if named else ""
        if named and (before != words[: named.start()].rstrip() or not _MAY_BE_OBJECT.fullmatch(named["word"])):
            mark = ":" if _MARK.search(words, len(before), named.start()) else " "
            return _key_of_word(named["word"], keys), before + mark if any(map(str.isalpha, before)) else ""
    begin = max((mark.end() for mark in _SEGMENT.finditer(words.rstrip(" \"'*_`:=({["))), default=0)
    key = _NOISE.sub("", words[begin:]).strip()
    end = words.rstrip().rpartition(" ")[2].strip("\"'*_`:=(")
    if ("_" in end or words.rstrip().endswith("=")) and keys[end].role == "shape":
        return end, words[: words.rfind(end)]  # cat: box_2d [1, 2, 3, 4]
    for name in (key, key.lower()):
        if keys[name].role in ("shape", "corner", "centre", "size") or name in PLACES:
            return name, words[:begin].rstrip(" ,;|(")
    return "", words


def _key_of_word(word: str, keys: Keys) -> str:
    """Return the key that a word of the box is, or means."""
    name = re.sub(r"[\s-]+", "_", word.lower())
    return name if keys[name].role == "shape" else BOX_WORDS[name]


@dataclass(slots=True)
class Beside:
    """What the words beside a value are: named values, the text of the element before them, and a label."""

    words: str
    fields: list[Field]
    content: list[Field]
    label: Label


def read_beside(words: str, keys: Keys, item: Item | None, is_after: bool, default: str) -> Beside:
    """Read words before a value, which gets the key that they name (or `default` without words), or after the last one.

    `is_after` says whether another value stands before them.
    """
    content: list[Field] = []
    if is_after and ">" in words and (inner := _CONTENT.match(words)):
        content.append(Field("alt", text=inner[1], done=True))
        words = words[inner.end() :]
    words, score = without_score(words)
    words, fields = without_fields(words, keys, item is not None)
    if "," in words:
        words = _SYMBOLS.sub(" ", words)
    if item is not None and not item.marked:
        key, words = key_at_end(words, keys)
        key = key or ("" if words.strip() else default)
        if key and (not item.field.key or (item.field.key == "points_2d" and keys[key].kind != "any")):
            item.field.key = key
    label = read_label(words, listed=item is not None and item.loose)
    if ACTIONS.fullmatch(label.text):
        label = NO_LABEL
    return Beside(words, [*fields, *score], content, label)
