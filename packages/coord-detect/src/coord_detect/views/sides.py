"""Whether a text names the left or the right side, so that it means another object in the mirror image."""

import re

_SIDES = re.compile("left|right", re.IGNORECASE)
_NO_SIDES = re.compile(
    "(?<![a-z])(?:leftover|leftist|cleft|righteous|rightful|bright|fright|upright|copyright|outright|downright|alright|"
    "birthright|forthright|wright|cartwright|playwright|shipwright|wheelwright)",
    re.IGNORECASE,
)
"""Words that contain left or right but name no side; turn_left, leftEye and rightarm do name one."""


def names_a_side(text: str) -> bool:
    """Return whether a text contains left or right in English.

    Example:
        >>> names_a_side("the leftmost cat"), names_a_side("a bright cat")
        (True, False)
    """
    return _SIDES.search(_NO_SIDES.sub("", text)) is not None
