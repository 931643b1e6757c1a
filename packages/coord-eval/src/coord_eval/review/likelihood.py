"""How likely a model finds the labels as they stand: one record for each label, in a file of JSON lines.

A model that writes boxes as text gives these numbers by teacher forcing: it is given the label's own tokens, and each
of them has a probability. Whatever a model cannot give stays None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, StrictInt, StrictStr
from pydantic.dataclasses import dataclass

from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_codec.files import InputError, atomic_write, read_json_lines
from coord_codec.records import validated
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.joining import IdIndex
from coord_eval.review.findings import rows_by_place

_FARTHEST = 0.02
"""Distance in fractions of the image from which on a record is about another box."""
_ROUNDING = 1e-6
"""A logarithm of a probability may exceed 0 by this error, and a probability 1."""
_Index = Annotated[int, Field(strict=True, ge=0)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Log = Annotated[float, Field(allow_inf_nan=False, le=_ROUNDING)]
_Share = Annotated[float, Field(ge=0, le=1 + _ROUNDING)]


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
        end_logprob: log-probability that the answer ends after it, of the last label in the order of the answer; where
            it is low, the model expects another object
        fold: the part of a cross-fitting whose model judged the label, which was not trained on it

    Raises:
        pydantic.ValidationError: (a ValueError) if a value is out of its range

    Example:
        >>> LabelLikelihood(7, 0, name_logprobs={"cat": -0.1, "dog": -2.35}).name_probability("cat")
        0.9048374180359595
    """

    image_id: StrictInt | StrictStr
    object: _Index
    desc: str | None = None
    bbox: tuple[_Number, ...] | None = None
    name_logprob_sum: _Log | None = None
    name_logprob_mean: _Log | None = None
    name_logprobs: dict[str, _Log] | None = None
    name_entropy: _Number | None = None
    coord_logprobs: tuple[_Log, ...] | None = None
    coord_expected: tuple[_Number, ...] | None = None
    coord_window_mass: tuple[_Share, ...] | None = None
    coord_entropy: tuple[_Number, ...] | None = None
    window: _Index | None = None
    end_logprob: _Log | None = None
    fold: _Index | None = None

    def name_probability(self, name: str) -> float | None:
        """Return the probability of a name: in the closed set, else per token of the label's own; None if unknown."""
        if self.name_logprobs is not None:
            return math.exp(self.name_logprobs[name]) if name in self.name_logprobs else 0.0
        if self.name_logprob_mean is not None and name == self.desc:
            return math.exp(self.name_logprob_mean)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are known, as they stand in the file."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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
    lines: dict[tuple[int | str, int], int] = {}
    for number, record in read_json_lines(path):
        where = f"{path}, line {number}"
        item = validated(LabelLikelihood, record, where)
        first = lines.setdefault((item.image_id, item.object), number)
        if first != number:
            raise InputError(
                f"{where}: a second record about object {item.object} of image {item.image_id!r}, the first is in line "
                f"{first}; keep one"
            )
        found.append(item)
    return found


def surprises(
    truth: GroundTruth, records: Sequence[LabelLikelihood]
) -> tuple[tuple[np.ndarray, np.ndarray], list[str]]:
    """Return how improbable the model finds the name and the box of each label, and notes.

    Both are log-odds against the label, less the median of the set, so that 0 is usual; labels without a record get 0.
    A box counts by its two most improbable coordinates, since a moved side leaves the others as they were.

    Raises:
        InputError: if a record is about a label that the ground truth does not have, or has with another name or box
    """
    index = IdIndex(truth)
    rows = rows_by_place(truth)
    name_N, box_N = np.full(len(truth.image_N), np.nan), np.full(len(truth.image_N), np.nan)
    for record in records:
        image = index.by_id(record.image_id)
        n = None if image is None else rows.get((image, record.object))
        where = f"likelihoods: image {record.image_id!r}, object {record.object}"
        if n is None:
            raise InputError(f"{where}: the ground truth has no such label; were they made for these annotations?")
        _check_same(truth, n, record, where)
        probability = record.name_probability(truth.categories[truth.category_N[n]])
        if probability is not None:
            name_N[n] = -_log_odds(probability)
        surprise = _of_coordinates(record)
        if surprise is not None:
            box_N[n] = surprise
    regular_N = ~truth.crowd_N
    lacking = int((np.isnan(name_N) & np.isnan(box_N) & regular_N).sum())
    told = [f"{counted(lacking, 'label has', 'labels have')} no likelihood and are judged by the answers alone"]
    return (_usual_removed(name_N), _usual_removed(box_N)), told if lacking else []


def goes_on(truth: GroundTruth, records: Sequence[LabelLikelihood]) -> np.ndarray:
    """Return how much the model expects another object after the labels of each image [I]; NaN where that is unknown.

    These are log-odds against the end of the answer, less the median of the set.
    """
    index = IdIndex(truth)
    value_I = np.full(len(truth.image_ids), np.nan)
    for record in records:
        if record.end_logprob is not None and (image := index.by_id(record.image_id)) is not None:
            value_I[image] = -_log_odds(math.exp(min(record.end_logprob, 0.0)))
    return np.where(np.isfinite(value_I), _usual_removed(value_I), np.nan)


def _check_same(truth: GroundTruth, n: int, record: LabelLikelihood, where: str) -> None:
    name, said = truth.categories[truth.category_N[n]], "and the ground truth has"
    if record.desc is not None and record.desc != name:
        raise InputError(f"{where}: it is about {record.desc!r}, {said} {name!r} there; judge it again")
    size = truth.sizes_I2[truth.image_N[n]]
    if record.bbox is not None and np.isfinite(size).all():
        own = LAYOUTS["xywh"](truth.boxes_N4[n : n + 1])[0] / np.tile(size, 2)
        if len(record.bbox) != 4 or np.abs(own - record.bbox).max() > _FARTHEST:
            box = own.round(4).tolist()
            raise InputError(f"{where}: it is about the box {list(record.bbox)}, {said} {box} there; judge it again")


def _of_coordinates(record: LabelLikelihood) -> float | None:
    values = [-_log_odds(mass) for mass in record.coord_window_mass or ()]
    values = values or [-value for value in record.coord_logprobs or ()]
    return float(np.mean(sorted(values)[-2:])) if values else None


def _log_odds(probability: float) -> float:
    kept = min(max(probability, 1e-4), 1 - 1e-4)
    return math.log(kept / (1 - kept))


def _usual_removed(value_N: np.ndarray) -> np.ndarray:
    known_N = np.isfinite(value_N)
    if not known_N.any():
        return np.zeros(len(value_N))
    return np.where(known_N, np.clip(value_N - np.median(value_N[known_N]), -4, 12), 0.0)
