"""Decoding: how an answer is generated (`grammar`) and how boxes are read from it (`boxes`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coord_detect.settings.base import Section

QUANTILE_LEVELS = tuple((i + 0.5) / 7 for i in range(7))
"""Probabilities of the recorded quantiles of a coordinate: the midpoints of seven equal shares; the middle is .5."""

_GRAMMARS = {
    "none": "free: the likeliest token of all",
    "markers": "the likeliest token of a well-formed answer",
    "names": "the likeliest token of a well-formed answer with only the names in the annotations",
}
_BOXES = {
    "tokens": "boxes as generated",
    "median": "each side is the median of the coordinate tokens",
    "best_iou": "each box is the one with the highest expected IoU over the coordinates' quantiles",
    "expectation": "each side is the expectation over the coordinate tokens",
}


class Decoding(Section):
    """How answers are generated and how boxes are read from them."""

    grammar: Literal["none", "markers", "names"] = Field(
        "none",
        description="what limits an answer: nothing, the form of targets (markers, or JSON with `data.style: json`), "
        "or that form with only the names in the annotations",
    )
    boxes: Literal["tokens", "median", "best_iou", "expectation"] = Field(
        "tokens",
        description="boxes: the generated bins; median or expectation of each coordinate, unrounded; or the box with "
        "the highest expected IoU",
    )

    @property
    def needs_tokens(self) -> bool:
        """Whether the answers have to consist of coordinate tokens."""
        return self.grammar != "none" or self.boxes != "tokens"

    @property
    def generation(self) -> Decoding:
        """The part that the generated tokens depend on; decodings that share it differ only in the boxes."""
        return self.model_copy(update={"boxes": "tokens"})

    @property
    def name(self) -> str:
        """The name in folders, files and tables: `none`, `markers-best_iou`."""
        return self.grammar if self.boxes == "tokens" else f"{self.grammar}-{self.boxes}"

    @property
    def meaning(self) -> str:
        """One line for readers of a report."""
        return f"{_GRAMMARS[self.grammar]}; {_BOXES[self.boxes]}"

    @property
    def score_boxes(self) -> str:
        """The value of `boxes` in `coord_eval.score`."""
        return "expected" if self.boxes == "expectation" else self.boxes


def decoding_named(name: str) -> Decoding | None:
    """Return the decoding of a name; None if there is none.

    Example:
        >>> decoding_named("none-best_iou") == Decoding(boxes="best_iou")
        True
    """
    grammar, _, boxes = name.partition("-")
    boxes = boxes or "tokens"
    return Decoding(grammar=grammar, boxes=boxes) if grammar in _GRAMMARS and boxes in _BOXES else None
