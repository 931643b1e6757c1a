"""Decoding: how an answer is generated (`grammar`, `filled`) and how boxes are read from it (`boxes`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from coord_codec import Geometry, geometry_of
from coord_trainer.config.base import Section

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
    filled: bool = Field(
        False,
        description="continue each answer until it has `data.noise_objects` objects, none of which may be called "
        "noise; their labels are ranked by the probabilities before that restriction; needs `grammar: names`",
    )

    @model_validator(mode="after")
    def _filled_with_names(self) -> Decoding:
        if self.filled and self.grammar != "names":
            raise ValueError(
                f"evaluation.decoding.filled is true but evaluation.decoding.grammar is {self.grammar}: only known "
                "names keep an answer from naming noise; set grammar: names"
            )
        return self

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
        """The name in folders, files and tables: `none`, `markers-best_iou`, `names-filled`."""
        parts = [self.grammar]
        if self.boxes != "tokens":
            parts.append(self.boxes)
        if self.filled:
            parts.append("filled")
        return "-".join(parts)

    @property
    def meaning(self) -> str:
        """One line for readers of a report."""
        filled = ", up to data.noise_objects objects ranked by the probability of a label instead of noise"
        return f"{_GRAMMARS[self.grammar]}{filled if self.filled else ''}; {_BOXES[self.boxes]}"

    @property
    def score_boxes(self) -> str:
        """The value of `boxes` in `coord_eval.score`."""
        return "expected" if self.boxes == "expectation" else self.boxes

    def held_to_names(self, filled: bool) -> Decoding:
        """Return the decoding that also limits answers to known names.

        Args:
            filled: whether the model was trained with noise objects, and so can be decoded to a fixed number of them
        """
        if self.grammar == "names":
            return self
        return self.model_copy(update={"grammar": "names", "filled": filled})


def supported(decodings: Iterable[Decoding], geometry: str | Geometry, tokens: bool, noise: bool) -> list[Decoding]:
    """Return the decodings that a run supports.

    Args:
        decodings: to choose from
        geometry: of the targets
        tokens: whether answers consist of marked objects with coordinate tokens
        noise: whether targets are filled with noise objects
    """
    return [
        decoding
        for decoding in decodings
        if (tokens or not decoding.needs_tokens)
        and (decoding.boxes == "tokens" or geometry_of(geometry).is_box)
        and (noise or not decoding.filled)
    ]


def prediction_files(decodings: Sequence[Decoding], run: Path) -> list[tuple[Decoding, Path]]:
    """Return a run's decodings with their predictions.jsonl; that of the first is in the run folder itself."""
    first, *others = decodings
    further = [(decoding, run / "decodings" / decoding.name / "predictions.jsonl") for decoding in others]
    return [(first, run / "predictions.jsonl"), *further]


def decoding_named(name: str) -> Decoding | None:
    """Return the decoding of a name; None if there is none.

    Example:
        >>> decoding_named("none-best_iou") == Decoding(boxes="best_iou")
        True
    """
    grammar, *rest = name.split("-")
    filled = "filled" in rest
    boxes = [part for part in rest if part != "filled"]
    if grammar not in _GRAMMARS or len(boxes) > 1 or not set(boxes) <= set(_BOXES):
        return None
    return Decoding(grammar=grammar, boxes=boxes[0] if boxes else "tokens", filled=filled)
