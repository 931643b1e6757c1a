"""Tells the answers of conversations that state that there is no object: in JSON, in numbers or in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from coord_codec.files import InputError

ABSENT = "objects that an answer states as absent (none, null, an empty box), read as no object"
IN_THOUGHT = "boxes in a thought (<think>) of an answer, left out, since a thought is no part of the answer"
_NONE = re.compile(
    r"(?:none|null|nothing|n/a|\[\s*\]|\{\s*\}"
    r"|there (?:is|are|was|were) (?:no|not any)\b[^\d<{\[]*"
    r"|no\b[^\d<{\[]*\b(?:found|present|visible|detected|seen|image|picture|photo)"
    r"|(?:i )?(?:can ?not|can't|could not|do not|don't|did not|didn't) (?:see|find|detect|locate) any\b[^\d<{\[]*)",
    re.IGNORECASE,
)


def says_none(text: str) -> bool:
    r"""Return whether an answer states that there is no object.

    Example:
        >>> [says_none(text) for text in ("```json\n[]\n```", "None", "There is no dog.", "No, it is red.", "[1]")]
        [True, True, True, False, False]
    """
    bare = text.strip().removeprefix("```json").strip("`\"' \n\t").rstrip(".! ")
    return not bare or _NONE.fullmatch(bare) is not None


def says_no_box(value: Any) -> bool:
    """Return whether the numbers of an object state that there is none: null, none, an empty list, or only zeros.

    Example:
        >>> [says_no_box(value) for value in (None, [], "none", [0, 0, 0, 0], [0, 0, 5, 5], {})]
        [True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return says_none(value)
    if isinstance(value, list):
        return all(item is None or (type(item) in (int, float) and item == 0) for item in value)
    return value is None


def check_no_video(record: Mapping[str, Any]) -> None:
    """Check that a conversation is not about a video."""
    if record.get("videos") or record.get("video"):
        raise InputError(
            "a conversation about a video, whose boxes belong to frames that are not files: write its frames as "
            "images, and a record for each"
        )
