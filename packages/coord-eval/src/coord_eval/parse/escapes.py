"""Undoes escapes around a whole answer, JSON inside strings, CSV and HTML entities, so that positions stay."""

from __future__ import annotations

import re

_ESCAPED_KEY = re.compile(r"[{\[,]\s*(?:\\+[nt]\s*)*(\\+)\"\w")
_ENTITY_KEY = re.compile(r"[{\[,]\s*&(?:amp;)*(?:quot|#34|#x22|apos|#39|#x27);\w", re.IGNORECASE)
_ENTITY = re.compile("&(?:amp;)*(?:(?:quot|#34|#x22)|(?P<single>apos|#39|#x27));", re.IGNORECASE)
_DOUBLED_KEY = re.compile(r'\s*(?:```\w*\s*)?["\[{][\s"\[{]*""\w+""\s*:')
_DOUBLED = re.compile('(?P<inner>"""")(?!"")|""')
_BEFORE, _AFTER = frozenset(["", *'{[,: \t\n"nrt']), frozenset(" \t\n,:}]")
"""What stands before the quote that begins a string, and after one that ends it."""
_ESCAPED_TAG = re.compile(r"&(?:lt|#60|#x3c);[/|]", re.IGNORECASE)
_ANGLE = re.compile("&(?:amp;)*(?:(?:lt|#60|#x3c)|(?P<right>gt|#62|#x3e));", re.IGNORECASE)

FILLER = "\0"
"""What stands within a string in place of the rest of an escape."""


def without_escapes(text: str) -> str:
    r"""Return a text of the same length in which quotes and angle brackets are not escaped.

    Example:
        >>> without_escapes(r'"[{\"label\": \"cat\"}]"')
        '"[{ "label" :  "cat" }]"'
        >>> without_escapes("&lt;ref&gt;cat&lt;/ref&gt;")
        '   <ref>   cat   </ref>   '
    """
    if "\\" in text and (key := _ESCAPED_KEY.search(text)):
        depth = len(key[1])  # of strings within strings: 1, 3, 7
        escape = rf"(?<!\\)\\{{{depth + 1}}}(?P<inner>\\{{{depth}}}\")|(?<!\\)\\{{1,{depth}}}(?:(?P<blank>[nrt])|\")"
        text = re.sub(escape, _padded, text)
    elif '""' in text and _DOUBLED_KEY.match(text):
        text = _DOUBLED.sub(_padded, text)
    if "&" in text:
        if _ENTITY_KEY.search(text):
            text = _ENTITY.sub(_padded, text)
        if "<" not in text or _ESCAPED_TAG.search(text):
            text = _ANGLE.sub(lambda found: (">".ljust if found["right"] else "<".rjust)(len(found[0])), text)
    return text


def _padded(found: re.Match[str]) -> str:
    """Return the quote that an escape stands for, beside the string that it begins or ends."""
    (start, stop), pieces, text = found.span(), found.groupdict(), found.string
    width = stop - start
    if pieces.get("inner"):
        return r"\"".rjust(width, FILLER)
    if pieces.get("blank"):
        return " " * width
    quote = "'" if pieces.get("single") else '"'
    opens = text[max(start - 1, 0) : start] in _BEFORE and text[stop : stop + 1] not in _AFTER
    return quote.rjust(width) if opens else quote.ljust(width)
