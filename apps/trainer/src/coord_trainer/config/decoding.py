"""Decoding strategies: how an answer is generated and how boxes are taken from it, the same for all groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

QUANTILE_LEVELS = tuple((i + 0.5) / 7 for i in range(7))
"""Probabilities of the quantiles of a coordinate that answers state: the midpoints of equal shares, with the median."""


@dataclass(frozen=True)
class DecodingStrategy:
    """One way of decoding answers.

    Attributes:
        name: what configs and reports call it.
        grammar: whether the grammar excludes everything that is no well-formed answer.
        feed_expectation: whether the bin nearest to the expectation is generated instead of the likeliest one. It
            then stands in the context of the next side; a bin that was never trained can derail what follows.
        boxes: `"tokens"`: the bins generated; `"expected"`, `"median"`: expectation or median at the same places,
            unrounded; `"best_iou"`: the box of the highest expected IoU.
        meaning: one line for readers of a report.
        known_names: whether descriptions are limited to those in the annotations. A model that was never taught
            where a name ends, as under two markers without cross-entropy on coordinates, then stops where it is
            complete.
        filled: whether answers go on to `data.noise_objects` objects, of which none may be called noise. A label's
            probability is then the one before that: how surely the model would have said it by itself.
    """

    name: str
    grammar: bool
    feed_expectation: bool
    boxes: str
    meaning: str
    known_names: bool = False
    filled: bool = False

    @property
    def needs_tokens(self) -> bool:
        """Whether it is for answers in coordinate tokens alone."""
        return self.grammar or self.boxes != "tokens"

    @property
    def generation(self) -> tuple[bool, ...]:
        """What the generated tokens depend on: strategies equal in this differ in the boxes alone."""
        return self.grammar, self.feed_expectation, self.known_names, self.filled


_EVERY = (
    DecodingStrategy("greedy", False, False, "tokens", "free: the likeliest token of all, boxes as generated"),
    DecodingStrategy(
        *("best-iou", False, False, "best_iou"),
        "the same answers; each box is the one of the highest expected IoU over the coordinates' quantiles",
    ),
    DecodingStrategy("grammar", True, False, "tokens", "the likeliest token that the grammar allows"),
    DecodingStrategy(
        *("grammar-expectation", True, False, "expected"),
        "the same answers; each side is the expectation over the coordinate tokens",
    ),
    DecodingStrategy(
        *("grammar-median", True, False, "median"), "the same answers; each side is the median of the coordinate tokens"
    ),
    DecodingStrategy(
        *("grammar-best-iou", True, False, "best_iou"),
        "the same answers; each box is the one of the highest expected IoU over the coordinates' quantiles",
    ),
    DecodingStrategy(
        *("grammar-feedback", True, True, "expected"),
        "as grammar-expectation, with the rounded expectation generated and fed back instead of the likeliest bin",
    ),
    DecodingStrategy("names", True, False, "tokens", "the grammar, with the names in the annotations alone", True),
    DecodingStrategy(
        *("names-best-iou", True, False, "best_iou"),
        "the same answers; each box is the one of the highest expected IoU over the coordinates' quantiles",
        known_names=True,
    ),
    DecodingStrategy(
        *("names-filled", True, False, "tokens"),
        "the same up to data.noise_objects objects, ranked by how surely the model says each label instead of noise",
        known_names=True,
        filled=True,
    ),
    DecodingStrategy(
        *("names-feedback", True, True, "expected"),
        "the same, with the rounded expectation generated and fed back",
        known_names=True,
    ),
)
STRATEGIES: Mapping[str, DecodingStrategy] = MappingProxyType({each.name: each for each in _EVERY})
"""Every strategy by its name in `evaluation.readings`."""


def held_to_names(reading: str, filled: bool) -> str:
    """Return the strategy that keeps to known names and is else the nearest to another one.

    Args:
        reading: the name of the other one
        filled: whether targets were filled with noise objects
    """
    like = STRATEGIES[reading]
    if like.known_names:
        return reading
    if filled:
        return "names-filled"
    if like.feed_expectation:
        return "names-feedback"
    return "names" if like.boxes == "tokens" else "names-best-iou"


def strategies_for(geometry: str, tokens: bool, noise: bool) -> list[str]:
    """Return the names of the strategies that a run can be read by.

    Args:
        geometry: what is written of each object
        tokens: whether answers are marked objects of coordinate tokens
        noise: whether targets are filled with noise objects
    """
    return [
        name
        for name, each in STRATEGIES.items()
        if (tokens or not each.grammar)
        and (each.boxes == "tokens" or (tokens and geometry == "box"))
        and (noise or not each.filled)
    ]


def prediction_files(readings: Sequence[str], run: Path) -> list[tuple[DecodingStrategy, Path]]:
    """Return a run's strategies with their predictions.jsonl; that of the first lies in the run folder itself."""
    folders = [run, *(run / "readings" / name for name in readings[1:])]
    return [(STRATEGIES[name], at / "predictions.jsonl") for name, at in zip(readings, folders, strict=True)]
