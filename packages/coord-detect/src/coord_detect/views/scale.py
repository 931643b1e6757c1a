"""The image at another size."""

from __future__ import annotations

import math
from dataclasses import dataclass

from coord_detect.views.view import Look, Question, View


@dataclass(frozen=True)
class Scale(View):
    """The image resized by a factor, as the model sees it: what exceeds the model's limit is reduced to it before.

    The limits of the model are multiplied by the square of the factor, so that the processor does not undo the change;
    a server has limits of its own.
    """

    factor: float

    name = "scale"
    about = "the image enlarged or reduced by a factor"
    example = "scale:1.25"

    @classmethod
    def parse(cls, argument: str | None) -> Scale:  # noqa: D102
        try:
            factor = float(argument or "")
        except ValueError:
            factor = math.nan
        if not 0.1 <= factor <= 10 or factor == 1:
            raise ValueError(f"expected a factor from 0.1 to 10 other than 1, as in {cls.example}, found {argument!r}")
        return cls(factor)

    def looks(self, width: int, height: int, question: Question) -> list[Look]:  # noqa: D102
        seen = 1.0
        if question.max_pixels is not None and width * height > question.max_pixels:
            seen = math.sqrt(question.max_pixels / (width * height))
        size = max(1, round(width * seen * self.factor)), max(1, round(height * seen * self.factor))
        return [Look(size=size, pixels=self.factor**2)]
