"""Where the pixels of a writer of boxes begin and end: which number the first one has, and whether the last is counted.

A box of ten pixels at the left border is 1 to 10 for Pascal VOC, 0 to 10 for COCO and most tools, and 0 to 9 for some.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Origin(NamedTuple):
    """What is subtracted from the corners that a writer states, which gives continuous pixels from 0.

    Attributes:
        low: subtracted from the first corner
        high: subtracted from the second corner

    Example:
        >>> ORIGINS["from-1"].corners([1, 1, 10, 10]), ORIGINS["from-0-to-last"].corners([0, 0, 9, 9])
        ((0, 0, 10, 10), (0, 0, 10, 10))
    """

    low: float
    high: float

    def corners(self, written: Any) -> tuple[float, float, float, float]:
        """Return the four corners that are continuous of four that are written."""
        x1, y1, x2, y2 = written
        return x1 - self.low, y1 - self.low, x2 - self.high, y2 - self.high

    @property
    def word(self) -> str:
        """Its name in `ORIGINS`."""
        return next(word for word, origin in ORIGINS.items() if origin == self)


ORIGINS = {
    "from-1": Origin(1, 0),
    "from-0": Origin(0, 0),
    "from-0-to-last": Origin(0, -1),
    "from-1-past-last": Origin(1, 1),
    "from-0-past-last": Origin(0, 1),
    "from-0-first-early": Origin(-1, 0),
}
"""Origins by the word that chooses them: from 1 with the last pixel included (Pascal VOC); from 0 to the edge (COCO);
from 0 with the last pixel included; both corners one more than from 0; from 0 with a pixel more than there is; and from
0 with a first corner from which 1 was subtracted, as if it counted from 1."""

ABOUT = {
    "from-1": "counted from 1, the last pixel included",
    "from-0": "counted from 0, up to the edge",
    "from-0-to-last": "counted from 0, the last pixel included",
    "from-1-past-last": "one more than from 0 at both corners",
    "from-0-past-last": "a pixel too wide and too high",
    "from-0-first-early": "the first corner a pixel too early",
}
"""The origins in words."""

SHORT = "boxes of a file whose areas are those of boxes a pixel larger (Supervisely): read a pixel wider and higher"
WIDE = "boxes of a file of scalabel, which adds a pixel to each side: read without it"
CHOOSES = "--read-as from-"
"""What notes on the origin of boxes have, which a user's choice makes untrue."""
SCALABEL = "scalabel_id"
"""Field of the annotations that scalabel writes."""
