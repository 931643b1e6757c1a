"""Undoes escapes around a whole answer, JSON inside a string and HTML entities, so that positions stay."""

from __future__ import annotations

import re

_ESCAPED_KEY = re.compile(r"[{\[,]\s*(?:\\[nt]\s*)*\\\"\w")
_ENTITY_KEY = re.compile(r"[{\[,]\s*(?:&quot;|&#34;)\w")
_ESCAPE = re.compile(
    r'\\\\(?P<inner>\\")|\\(?P<blank>[nrt])|(?P<opens>(?<=[{\[,:\s"n])\\"(?=[^\s,:}\]]))|(?P<closes>\\")'
)
_QUOTE = re.compile(r"(?P<opens>(?<=[{\[,:\s])&(?:quot|#34);(?=[^\s,:}\]]))|(?P<closes>&(?:quot|#34);)")


def without_escapes(text: str) -> str:
    r"""Return a text of the same length in which quotes and angle brackets are not escaped.

    Example:
        >>> without_escapes(r'"[{\"label\": \"cat\"}]"')
        '"[{ "label" :  "cat" }]"'
        >>> without_escapes("&lt;ref&gt;cat&lt;/ref&gt;")
        '   <ref>   cat   </ref>   '
    """
    if "\\" in text and _ESCAPED_KEY.search(text):
        text = _ESCAPE.sub(_padded, text)
    if "&" in text:
        if _ENTITY_KEY.search(text):
            text = _QUOTE.sub(_padded, text)
        if "&lt;" in text and "<" not in text:
            text = text.replace("&lt;", "   <").replace("&gt;", ">   ")
    return text


def _padded(found: re.Match[str]) -> str:
    width, kind = len(found[0]), found.lastgroup
    if kind == "inner":
        return found["inner"].rjust(width)
    if kind == "blank":
        return " " * width
    return '"'.rjust(width) if kind == "opens" else '"'.ljust(width)
