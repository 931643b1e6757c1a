"""How likely a model finds the labels as they stand: one record for each label, in a file of JSON lines.

A model that writes boxes as text gives these numbers by teacher forcing: it is given the label's own tokens, and each
of them has a probability. Whatever a model cannot give stays None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from coord_codec.files import InputError, atomic_write, finite_numbers, identifier, read_json_lines

_MOST_LOG = 1e-6
"""A logarithm of a probability may exceed 0 by this rounding error."""


@dataclass(frozen=True)
class LabelLikelihood:
    """The probabilities that a model gives the tokens of one label; logarithms are natural.

    Attributes:
        image_id: the image's id in the ground truth; the index of its record where that has none
        object: index of the label among those of its image, in the order of the annotations, crowd regions included
        desc: name of the label that was judged; `review` refuses the record if the ground truth has another one there
        bbox: its box `(x1, y1, x2, y2)` in [0, 1]; it is checked likewise
        name_logprob_sum: sum of the log-probabilities of the tokens of its name
        name_logprob_mean: their mean
        name_logprobs: log-probability of each name of a closed set at this place, given that it is one of them
        name_entropy: entropy of the name in nats: of the closed set, else the mean over its tokens
        coord_logprobs: log-probability of each of its coordinates
        coord_expected: expected value of each coordinate in [0, 1]
        coord_window_mass: probability that each coordinate lies within `window` bins of that of the label
        coord_entropy: entropy of each coordinate in nats
        window: number of bins to each side that `coord_window_mass` includes
        fold: the part of a cross-fitting whose model judged the label, which was not trained on it

    Raises:
        InputError: if a value is out of its range

    Example:
        >>> LabelLikelihood(7, 0, name_logprobs={"cat": -0.1, "dog": -2.35}).name_probability("cat")
        0.9048374180359595
    """

    image_id: int | str
    object: int
    desc: str | None = None
    bbox: tuple[float, ...] | None = None
    name_logprob_sum: float | None = None
    name_logprob_mean: float | None = None
    name_logprobs: Mapping[str, float] | None = None
    name_entropy: float | None = None
    coord_logprobs: tuple[float, ...] | None = None
    coord_expected: tuple[float, ...] | None = None
    coord_window_mass: tuple[float, ...] | None = None
    coord_entropy: tuple[float, ...] | None = None
    window: int | None = None
    fold: int | None = None

    def __post_init__(self) -> None:
        identifier(self.image_id, "image_id")
        for name in ("object", "window", "fold"):
            value = getattr(self, name)
            optional = name != "object"
            if not (optional and value is None) and (
                isinstance(value, bool) or not isinstance(value, int) or value < 0
            ):
                raise InputError(f"{name}: expected a whole number of at least 0, found {value!r:.80}")
        if self.desc is not None and not isinstance(self.desc, str):
            raise InputError(f"desc: expected the name of the label, found {self.desc!r:.80}")
        for name in ("name_logprob_sum", "name_logprob_mean", "name_entropy"):
            if (value := getattr(self, name)) is not None:
                finite_numbers([value], 1, name)
        for name in ("bbox", "coord_logprobs", "coord_expected", "coord_window_mass", "coord_entropy"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, finite_numbers(value, None, name))
        if self.name_logprobs is not None and not isinstance(self.name_logprobs, Mapping):
            raise InputError(f"name_logprobs: expected {{name: log-probability}}, found {self.name_logprobs!r:.80}")
        logs = {
            "name_logprob_sum": [self.name_logprob_sum],
            "name_logprob_mean": [self.name_logprob_mean],
            "name_logprobs": list(finite_numbers(list((self.name_logprobs or {}).values()), None, "name_logprobs")),
            "coord_logprobs": list(self.coord_logprobs or ()),
        }
        for name, values in logs.items():
            if any(value is not None and value > _MOST_LOG for value in values):
                raise InputError(
                    f"{name}: expected logarithms of probabilities, at most 0, found {max(filter(None, values)):g}"
                )
        if any(not 0 <= value <= 1 + _MOST_LOG for value in self.coord_window_mass or ()):
            raise InputError(f"coord_window_mass: expected probabilities in [0, 1], found {self.coord_window_mass}")

    def name_probability(self, name: str) -> float | None:
        """Return the probability of a name: in the closed set, else per token of the label's own; None if unknown."""
        if self.name_logprobs is not None:
            return math.exp(self.name_logprobs[name]) if name in self.name_logprobs else 0.0
        if self.name_logprob_mean is not None and name == self.desc:
            return math.exp(self.name_logprob_mean)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are known, as they stand in the file."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            for name, value in known.items()
            if value is not None
        }


_FIELDS = frozenset(field.name for field in fields(LabelLikelihood))


def write_likelihoods(path: str | Path, likelihoods: Iterable[LabelLikelihood]) -> int:
    """Write a line for each label, atomically; return their number.

    Raises:
        OSError: if the file cannot be written

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "likelihoods.jsonl"
        >>> write_likelihoods(path, [LabelLikelihood(7, 0, "cat", coord_logprobs=(-0.5, -1.0, -0.25, -2.0))])
        1
        >>> read_likelihoods(path)[0].coord_logprobs
        (-0.5, -1.0, -0.25, -2.0)
    """
    count = 0
    with atomic_write(path) as file:
        for likelihood in likelihoods:
            file.write(json.dumps(likelihood.to_dict(), ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def read_likelihoods(path: str | Path) -> list[LabelLikelihood]:
    """Read the records of a file; keys that are no fields are ignored.

    Raises:
        InputError: if the file cannot be read, a value is out of its range, or two records are about one label
    """
    found: list[LabelLikelihood] = []
    first: dict[tuple[int | str, int], int] = {}
    for number, record in read_json_lines(path):
        where = f"{path}, line {number}"
        if lacking := [name for name in ("image_id", "object") if name not in record]:
            raise InputError(f"{where}: {lacking[0]} is missing; each line is about one label of the ground truth")
        try:
            item = LabelLikelihood(**{name: value for name, value in record.items() if name in _FIELDS})
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        key = (item.image_id, item.object)
        if key in first:
            raise InputError(
                f"{where}: a second record about object {item.object} of image {item.image_id!r}, the first is in line "
                f"{first[key]}; keep one"
            )
        first[key] = number
        found.append(item)
    return found
