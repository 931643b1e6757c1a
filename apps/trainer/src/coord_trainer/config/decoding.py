"""Decoding strategies: how an answer is generated and how boxes are read from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from coord_codec import Geometry, geometry_of

QUANTILE_LEVELS = tuple((i + 0.5) / 7 for i in range(7))
"""Probabilities of the recorded quantiles of a coordinate: the midpoints of seven equal shares; the middle is .5."""


@dataclass(frozen=True)
class DecodingStrategy:
    """One way of decoding answers.

    Attributes:
        name: in configs and reports.
        grammar: whether a grammar limits answers to well-formed ones.
        feed_expectation: whether the bin nearest to the expectation is generated instead of the likeliest one. It
            is then part of the context of the next side; a bin that was never trained can derail what follows.
        boxes: `"tokens"`: the generated bins; `"expected"`, `"median"`: expectation or median of the same
            coordinates, unrounded; `"best_iou"`: the box with the highest expected IoU.
        meaning: one line for readers of a report.
        known_names: whether descriptions are limited to those in the annotations. Each then ends when it is complete,
            even if the model was never taught where a name ends, as with two markers and no cross-entropy on
            coordinates.
        filled: whether answers continue until they have `data.noise_objects` objects, none of which may be called
            noise. A label's probability is the one before that restriction.
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
        """Whether the strategy requires coordinate tokens."""
        return self.grammar or self.boxes != "tokens"

    @property
    def generation(self) -> tuple[bool, ...]:
        """What the generated tokens depend on; strategies that are equal in this differ only in the boxes."""
        return self.grammar, self.feed_expectation, self.known_names, self.filled


_STRATEGIES = (
    DecodingStrategy("greedy", False, False, "tokens", "free: the likeliest token of all, boxes as generated"),
    DecodingStrategy(
        *("best-iou", False, False, "best_iou"),
        "the same answers; each box is the one with the highest expected IoU over the coordinates' quantiles",
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
        "the same answers; each box is the one with the highest expected IoU over the coordinates' quantiles",
    ),
    DecodingStrategy(
        *("grammar-feedback", True, True, "expected"),
        "as grammar-expectation, with the rounded expectation generated and fed back instead of the likeliest bin",
    ),
    DecodingStrategy("names", True, False, "tokens", "the grammar, with only the names in the annotations", True),
    DecodingStrategy(
        *("names-best-iou", True, False, "best_iou"),
        "the same answers; each box is the one with the highest expected IoU over the coordinates' quantiles",
        known_names=True,
    ),
    DecodingStrategy(
        *("names-filled", True, False, "tokens"),
        "the same up to data.noise_objects objects, ranked by the probability of each label instead of noise",
        known_names=True,
        filled=True,
    ),
    DecodingStrategy(
        *("names-feedback", True, True, "expected"),
        "the same, with the rounded expectation generated and fed back",
        known_names=True,
    ),
)
STRATEGIES: Mapping[str, DecodingStrategy] = MappingProxyType({strategy.name: strategy for strategy in _STRATEGIES})
"""Every strategy by its name in `evaluation.readings`."""


def held_to_names(reading: str, filled: bool) -> str:
    """Return the decoding strategy with known names that is most similar to a given one.

    Args:
        reading: name of the given strategy
        filled: whether targets were filled with noise objects
    """
    strategy = STRATEGIES[reading]
    if strategy.known_names:
        return reading
    if filled:
        return "names-filled"
    if strategy.feed_expectation:
        return "names-feedback"
    return "names" if strategy.boxes == "tokens" else "names-best-iou"


def strategies_for(geometry: str | Geometry, tokens: bool, noise: bool) -> list[str]:
    """Return the names of the decoding strategies that a run supports.

    Args:
        geometry: of the targets
        tokens: whether answers consist of marked objects with coordinate tokens
        noise: whether targets are filled with noise objects
    """
    return [
        name
        for name, strategy in STRATEGIES.items()
        if (tokens or not strategy.grammar)
        and (strategy.boxes == "tokens" or (tokens and geometry_of(geometry).is_box))
        and (noise or not strategy.filled)
    ]


def prediction_files(readings: Sequence[str], run: Path) -> list[tuple[DecodingStrategy, Path]]:
    """Return a run's strategies with their predictions.jsonl; that of the first is in the run folder itself."""
    folders = [run, *(run / "readings" / name for name in readings[1:])]
    return [(STRATEGIES[name], folder / "predictions.jsonl") for name, folder in zip(readings, folders, strict=True)]
