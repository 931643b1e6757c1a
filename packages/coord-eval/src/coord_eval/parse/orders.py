"""Finds the order of the numbers of boxes that the words of an answer state, and the origin or scale of all of them."""

from __future__ import annotations

import re


def setting_of(number: str) -> str:
    """Return the pattern of an origin or a scale of two numbers, in groups `setting_name` and `setting_numbers`.

    Example:
        >>> written = ("origin: {x: 1, y: 2}", "<scale><x>1</x><y>2</y></scale>", "offset = (1, 2)")
        >>> [re.match("<?" + setting_of("[0-9]"), text)["setting_name"] for text in written]
        ['origin', 'scale', 'offset']
    """
    return (
        r"\b(?P<setting_name>(?:bbox_)?(?:origin|offset|scale(?:_factor)?))\b(?P<setting_numbers>[^\w+-]{1,9}(?:"
        rf"[xy]\W{{1,6}}{number}\W{{1,9}}(?:[xy]\W{{1,9}}){{1,2}}|[\[(]\s*{number}[\s,%]+|-\s+{number}\s+-\s+"
        rf"){number}(?!\s*,\s*[0-9]|[.\w])%?[\])}}]?)"
    )


_ORDER = re.compile(
    r"(?P<box_2d>\bbox_2d\b)|(?P<cxcywh>\byolo\b|x_?cent(?:er|re)>?\s+<?y_?cent(?:er|re)>?\s+<?w(?:idth)?>?\s+<?h(?:eight)?\b)"
    r"|(?P<yxyx>\by_?(?:min|1|0)\s*,\s*x_?(?:min|1|0)\s*,\s*y_?(?:max|2|1)\s*,\s*x_?(?:max|2|1)\b)"
    r"|(?P<centre_size>\b(?:c_?x|x_?c|x_?cent(?:er|re)|cent(?:er|re)_?x)\s*,\s*\w{1,9}\s*,\s*w(?:idth)?\s*,\s*h(?:eight)?\b)"
    r"|\b(?:format|as|in|order|mode)\W{1,4}(?:(?P<y_first>yxyx)|(?P<centre>cxcywh)|(?P<size>xywh))\b"
    r"|(?P<xywh>\bx\w{0,4}\s*,\s*y\w{0,4}\s*,\s*w(?:idth)?\s*,\s*h(?:eight)?\b)",
    re.IGNORECASE,
)
_NAMES = {"box_2d": "yxyx", "y_first": "yxyx", "centre": "cxcywh", "centre_size": "cxcywh", "size": "xywh"}
ORDER_KEYS = {
    **{"yxyx": "box_2d", "xywh": "bbox_xywh", "cxcywh": "bbox_cxcywh"},  # those that a text may state in words
    **{"xyxy": "bbox", "xy": "point_2d"},
}
"""Keys of boxes in each order, and of a point."""


_CORNERS_TOO = re.compile(r"xyxy|convert|corner|x_?(?:2|max)|\bnot\b", re.IGNORECASE)
"""Words of a sentence that names another order than that of its boxes, or besides it."""


def key_of_prose(words: str) -> str:
    """Return the key of boxes in the order that the words before them state alone, "" if they state none.

    Example:
        >>> key_of_prose("Boxes are [ymin, xmin, ymax, xmax]."), key_of_prose("not as xyxy, but as xywh")
        ('box_2d', '')
    """
    order = stated_order(words)
    return ORDER_KEYS[order] if order and not _CORNERS_TOO.search(_ORDER.sub("", words)) else ""


def stated_order(words: str) -> str:
    """Return the order of a box that words state, other than both corners; "" if they state none.

    Example:
        >>> stated_order("in the format [ymin, xmin, ymax, xmax]"), stated_order("[x, y, width, height]")
        ('yxyx', 'xywh')
    """
    found = _ORDER.search(words)
    if found is None or ("xyxy" in words and found.lastgroup in ("y_first", "centre", "size")):
        return ""
    return _NAMES.get(name := str(found.lastgroup), name)
