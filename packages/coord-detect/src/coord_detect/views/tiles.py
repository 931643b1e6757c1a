"""Overlapping tiles of the image, in which small objects are large."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from coord_detect.views.view import Look, Question, View

_OVERLAP = 0.25
_LONGEST_AUTO = 1024
"""Longest side in pixels of a tile whose size is chosen."""


@dataclass(frozen=True)
class Tiles(View):
    """Overlapping tiles, evenly spaced over the image, of which each is asked about; no tile exceeds the image.

    Without a size they are the largest squares that the model sees unreduced, but at most 1,024 pixels wide.
    `overlap` is the least share of a tile that the next one shows too.
    """

    size: tuple[int, int] | None = None
    overlap: float = _OVERLAP

    name = "tiles"
    about = "overlapping tiles of so many pixels, or with auto of as many as the model sees unreduced"
    example = "tiles:640x640"

    @classmethod
    def parse(cls, argument: str | None) -> Tiles:  # noqa: D102
        match = re.fullmatch(r"(?:auto|([1-9]\d{0,5})x([1-9]\d{0,5}))(?::(0?\.\d+))?", argument or "")
        overlap = float(match[3]) if match and match[3] else _OVERLAP
        if match is None or overlap > 0.9:
            raise ValueError(
                f"expected auto or the width and height of a tile in pixels, as in {cls.example}, and after another "
                f"colon the overlap if it is not {_OVERLAP}, at most 0.9; found {argument!r}"
            )
        return cls(None if match[1] is None else (int(match[1]), int(match[2])), overlap)

    def looks(self, width: int, height: int, question: Question) -> list[Look]:  # noqa: D102
        if self.size is not None:
            tile = self.size
        else:
            side = min(_LONGEST_AUTO, math.isqrt(question.max_pixels or _LONGEST_AUTO**2))
            tile = (side, side)
        columns, rows = self._spans(width, tile[0]), self._spans(height, tile[1])
        if len(columns) == len(rows) == 1:
            return []
        return [Look(crop=(left, top, right, bottom)) for top, bottom in rows for left, right in columns]

    def _spans(self, length: int, tile: int) -> list[tuple[int, int]]:
        """Return begin and end of evenly spaced tiles that cover a length."""
        if tile >= length:
            return [(0, length)]
        count = math.ceil((length - tile) / (tile * (1 - self.overlap)) - 1e-9) + 1
        starts = [round(i * (length - tile) / (count - 1)) for i in range(count)]
        return [(start, start + tile) for start in starts]
