"""Answers of a model from disk or memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from coord_eval.errors import InputError
from coord_eval.reading import finite_numbers, identifier, read_json, read_json_lines

_FIVE_FLOATS = [float] * 5
FINISH_REASONS = ("stop", "length", "error")


@dataclass(frozen=True)
class Prediction:
    """One answer in words.

    Attributes:
        text: What the model wrote.
        image_id: Id of the image, None when only ``image`` names it.
        image: File name of the image.
        width: Width of the picture in pixels, where the producer stated it.
        height: Height likewise.
        input_size: Width and height of the picture as the model saw it (``input_width``, ``input_height``).
        finish_reason: ``stop``, ``length`` (cut off), ``error`` (no answer), None when unknown.
        coord_logprobs: Log-probability of each coordinate token of the text, in order.
        desc_logprobs: Log-probabilities of the description tokens, one tuple for each start marker in order.
            Files hold lists of lists, or one flat list beside ``desc_token_counts`` (how many tokens belong to
            each start marker), since a text does not tell where its tokens end.
        where: File and line for messages.
        coord_expected: Expectation in [0, 1] of each coordinate token of the text, in order.
    """

    text: str
    image_id: int | str | None = None
    image: str | None = None
    width: float | None = None
    height: float | None = None
    input_size: tuple[float, float] | None = None
    finish_reason: str | None = None
    coord_logprobs: tuple[float, ...] | None = None
    desc_logprobs: tuple[tuple[float, ...], ...] | None = None
    where: str = "prediction"
    coord_expected: tuple[float, ...] | None = None


class CocoResult(NamedTuple):
    """One box of a COCO results list: pixels ``xywh`` and a score. A tuple, since there may be millions."""

    image_id: int | str
    category_id: int | str
    bbox: tuple[float, ...]
    score: float


def read_predictions(path: str | Path) -> list[Prediction] | list[CocoResult]:
    """Read ``predictions.jsonl``, or a COCO results list (``.json`` that holds an array of boxes).

    Raises:
        InputError: Naming file, line and field.
    """
    path = Path(path)
    if path.suffix == ".json":
        data = read_json(path)
        if not isinstance(data, list):
            raise InputError(f"{path}: expected a list of results or answers, found {type(data).__name__}")
        return from_records(data, str(path))
    return [_prediction(record, f"{path}, line {number}") for number, record in read_json_lines(path)]


def from_records(
    records: Iterable[Mapping[str, Any]], source: str = "predictions"
) -> list[Prediction] | list[CocoResult]:
    """Turn dictionaries into predictions, or into COCO results when they have no ``text`` but a ``bbox``.

    An empty list is an empty results list.

    Raises:
        InputError: Naming record and field.
    """
    records = list(records)
    for position, record in enumerate(records):
        if type(record) is not dict and not isinstance(record, Mapping):
            raise InputError(f"{source}[{position}]: expected an object, found {type(record).__name__}")
    if all("text" not in record and ("bbox" in record or "category_id" in record) for record in records):
        return [
            _plain_result(record) or _coco_result(record, f"{source}[{position}]")
            for position, record in enumerate(records)
        ]
    return [_prediction(record, f"{source}[{position}]") for position, record in enumerate(records)]


def _prediction(record: Mapping[str, Any], where: str) -> Prediction:
    text = record.get("text")
    reason = record.get("finish_reason")
    if reason is not None and reason not in FINISH_REASONS:
        raise InputError(
            f"{where}, finish_reason: expected one of {', '.join(FINISH_REASONS)}, found {reason!r:.80}"
        )
    if text is None and reason == "error":
        text = ""
    if not isinstance(text, str):
        found = "nothing" if text is None else type(text).__name__
        raise InputError(f"{where}, text: expected the answer as text, found {found}")
    image_id, image = record.get("image_id"), record.get("image")
    if image_id is None and image is None:
        raise InputError(f"{where}, image_id: missing, and there is no image either; name the picture")
    if image is not None and not isinstance(image, str):
        raise InputError(f"{where}, image: expected a file name, found {image!r:.80}")
    size = {}
    for key in ("width", "height", "input_width", "input_height"):
        if record.get(key) is not None:
            size[key] = finite_numbers([record[key]], 1, f"{where}, {key}")[0]
            if size[key] <= 0:
                raise InputError(f"{where}, {key}: expected a length above 0, found {record[key]!r}")
    seen_width, seen_height = size.get("input_width"), size.get("input_height")
    return Prediction(
        text=text,
        image_id=None if image_id is None else identifier(image_id, f"{where}, image_id"),
        image=image,
        finish_reason=reason,
        coord_logprobs=_logprobs(record.get("coord_logprobs"), f"{where}, coord_logprobs"),
        desc_logprobs=_desc_logprobs(record, where),
        where=where,
        coord_expected=_expected(record.get("coord_expected"), f"{where}, coord_expected"),
        width=size.get("width"),
        height=size.get("height"),
        input_size=(seen_width, seen_height) if seen_width and seen_height else None,
    )


def _logprobs(value: object, where: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    numbers = finite_numbers(value, None, where)
    # Rounding in the producer may leave a certain token a hair above 0.
    if any(number > 1e-3 for number in numbers):
        raise InputError(
            f"{where}: a log-probability lies above 0 ({max(numbers):g}); give natural logarithms"
        )
    return tuple(min(number, 0.0) for number in numbers)


def _expected(value: object, where: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    numbers = finite_numbers(value, None, where)
    if not all(-1e-6 <= number <= 1 + 1e-6 for number in numbers):
        raise InputError(f"{where}: expected values in [0, 1], found {min(numbers):g} to {max(numbers):g}")
    return tuple(min(max(number, 0.0), 1.0) for number in numbers)


def _desc_logprobs(record: Mapping[str, Any], where: str) -> tuple[tuple[float, ...], ...] | None:
    """Read nested lists, or a flat list cut up by ``desc_token_counts``; without those it is one object's."""
    value, counts = record.get("desc_logprobs"), record.get("desc_token_counts")
    field = f"{where}, desc_logprobs"
    if value is None:
        return None
    if isinstance(value, list | tuple) and value and all(isinstance(part, list | tuple) for part in value):
        return tuple(_logprobs(part, f"{field}[{i}]") or () for i, part in enumerate(value))
    flat = _logprobs(value, field) or ()
    if counts is None:
        return (flat,) if flat else ()
    lengths = [int(n) for n in finite_numbers(counts, None, f"{where}, desc_token_counts")]
    if sum(lengths) != len(flat) or any(n < 0 for n in lengths):
        raise InputError(
            f"{where}, desc_token_counts: they add up to {sum(lengths)}, desc_logprobs has {len(flat)}"
        )
    ends = accumulate(lengths)
    return tuple(flat[end - n : end] for n, end in zip(lengths, ends, strict=True))


def _plain_result(record: Mapping[str, Any]) -> CocoResult | None:
    """Read a record that has nothing unusual about it, which is nearly every one; None leaves it to a closer look."""
    box: Any = record.get("bbox")
    score: Any = record.get("score")
    image_id, category_id = record.get("image_id"), record.get("category_id")
    if (
        type(box) is list
        and [*map(type, box), type(score)] == _FIVE_FLOATS
        and type(image_id) is int
        and type(category_id) is int
        and isfinite(sum(box) + score)
        and box[2] >= 0
        and box[3] >= 0
    ):
        return CocoResult(image_id, category_id, tuple(box), score)
    return None


def _coco_result(record: Mapping[str, Any], where: str) -> CocoResult:
    box = finite_numbers(record.get("bbox"), 4, f"{where}.bbox")
    if box[2] < 0 or box[3] < 0:
        raise InputError(f"{where}.bbox: expected a width and height of at least 0, found {list(box)}")
    return CocoResult(
        image_id=identifier(record.get("image_id"), f"{where}.image_id"),
        category_id=identifier(record.get("category_id"), f"{where}.category_id"),
        bbox=box,
        score=finite_numbers([record.get("score")], 1, f"{where}.score")[0],
    )
