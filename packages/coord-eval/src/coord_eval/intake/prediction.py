"""One text answer and what its record states about its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, StrictInt
from pydantic.dataclasses import dataclass

from coord_codec.arguments import plain
from coord_codec.files import InputError
from coord_codec.records import validated
from coord_eval.intake.server_records import with_text
from coord_eval.parse.answer import ParsedObject


def _quantiles(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    for row in rows:
        if len(row) % 2 == 0 or len(row) != len(rows[0]) or list(row) != sorted(row):
            raise InputError(f"expected an odd number of ascending quantiles, equal for all tokens, found {list(row)}")
    return rows


def _name(name: str) -> str:
    if not name.strip():
        raise InputError(f"expected a name, found {name!r}")
    return name


def _tile(tile: tuple[float, ...]) -> tuple[float, ...]:
    if min(tile) < 0 or min(tile[2:]) <= 0:
        raise InputError(f"expected x, y, width and height in pixels, found {list(tile)}")
    return tile


_Text = InstanceOf[str]
"""A file name or an answer may hold lone surrogates, which pydantic refuses to call text."""
_Id = Annotated[StrictInt | _Text, BeforeValidator(lambda v: int(v) if type(v) is float and v % 1 == 0 else v)]
_Name = Annotated[_Text, AfterValidator(_name)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Length = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# Rounding in the producer may leave the log-probability of a certain token slightly above 0.
_Log = Annotated[float, Field(le=1e-3, allow_inf_nan=False), AfterValidator(lambda v: min(v, 0.0))]
_Unit = Annotated[float, Field(ge=-1e-6, le=1 + 1e-6), AfterValidator(lambda v: min(max(v, 0.0), 1.0))]


@dataclass(frozen=True)
class _Object:
    desc: _Text
    bbox_xyxy: tuple[_Number, _Number, _Number, _Number]
    score: _Number
    points_xy: tuple[tuple[_Number, _Number], ...] = ()


@dataclass(frozen=True)
class Prediction:
    """The text of one answer, with optional data about its tokens.

    Attributes:
        text: generated text
        image_id: id of the image, None when only `image` names it
        image: file name of the image
        width: width of the image in pixels, None if the record does not state it
        height: height of the image in pixels, None if the record does not state it
        input_size: width and height of the image that the model was given (`input_width`, `input_height`)
        finish_reason: `stop`, `length` (cut off), `error` (no answer), None when unknown
        coord_logprobs: log-probability of each coordinate token of the text, in order
        desc_logprobs: log-probabilities of the description tokens, one tuple for each start marker in order.
            Files contain a list of lists, or one flat list and `desc_token_counts` (the number of tokens of each
            start marker), since token boundaries cannot be inferred from the text.
        where: file and line, for messages
        coord_expected: expected value in [0, 1] of each coordinate token of the text, in order
        coord_spread: standard deviation in [0, 1] of each coordinate token, in order
        coord_quantiles: quantiles in [0, 1] of each coordinate token, in order: the midpoints of an odd number of
            equal shares of its distribution, with the median in the middle
        label: label that the prompt asked for, given to boxes without a label of their own
        tile: `x, y, width, height` in pixels of the part of the image that the model was given, None for all of it
        objects: the objects that stand in place of those of the text, in [0, 1], since they come from several answers
            or were chosen among them: the `objects` of a record that has `fused`; None for those of the text
        thoughts: fields of the record in which the model wrote something, where its answer is empty
    """

    text: _Text
    image_id: _Id | None = None
    image: _Name | None = None
    width: _Length | None = None
    height: _Length | None = None
    input_size: tuple[_Length, _Length] | None = None
    finish_reason: Literal["stop", "length", "error"] | None = None
    coord_logprobs: tuple[_Log, ...] | None = None
    desc_logprobs: tuple[tuple[_Log, ...], ...] | None = None
    where: str = "prediction"
    coord_expected: tuple[_Unit, ...] | None = None
    coord_spread: tuple[_Unit, ...] | None = None
    coord_quantiles: Annotated[tuple[tuple[_Unit, ...], ...], AfterValidator(_quantiles)] | None = None
    label: _Name | None = None
    tile: Annotated[tuple[_Number, ...], Field(min_length=4, max_length=4), AfterValidator(_tile)] | None = None
    objects: tuple[InstanceOf[ParsedObject], ...] | None = None
    thoughts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.image_id is None and self.image is None:
            raise InputError("image_id: missing, and there is no image either; name the image")


def prediction_of(record: Mapping[str, Any], where: str, in_order: int | str | None = None) -> Prediction:
    """Return the answer that a record states; `in_order` is the image of one that names none, by its place.

    Raises:
        InputError: naming record and field; or the record names an image beside `in_order`
    """
    values = dict(record)
    if values.get("text") is None and values.get("finish_reason") == "error":
        values["text"] = ""
    values = with_text(values, where)
    if in_order is not None:
        if (named := next((n for n in ("image_id", "image") if values.get(n) is not None), None)) is not None:
            raise InputError(
                f"{where}: {named}: {values[named]!r:.80} names the image of the answer: leave in_order out"
            )
        values["image_id"] = in_order
    size = (values.get("input_width"), values.get("input_height"))
    stated = {"input_size": size if all(size) else None, "desc_logprobs": _by_object(record, where), "where": where}
    return validated(Prediction, {**values, **stated, "objects": _stated_objects(record, where)}, where)


def _stated_objects(record: Mapping[str, Any], where: str) -> list[ParsedObject] | None:
    """Return the objects of a record that were fused of several answers; None if the record has no `fused`."""
    if record.get("fused") is None:
        return None
    width, height = record.get("width"), record.get("height")
    if record.get("objects") is None or not width or not height:
        raise InputError(f"{where}: fused: expected objects, and the width and height of the image beside it")
    objects, scale = [], (float(width), float(height))
    for row in validated(tuple[_Object, ...], record["objects"], f"{where}: objects"):
        points = tuple((x / width, y / height) for x, y in row.points_xy)
        x1, y1, x2, y2 = row.bbox_xyxy
        box = (x1 / width, y1 / height, x2 / width, y2 / height)
        objects.append(ParsedObject(row.desc, box, row.bbox_xyxy, (0, 0), points=points, score=row.score, scale=scale))
    return objects


def _by_object(record: Mapping[str, Any], where: str) -> Sequence[Any] | None:
    """Return `desc_logprobs` by object: as given, or split by `desc_token_counts`, without which there is one."""
    value, counts = record.get("desc_logprobs"), record.get("desc_token_counts")
    if not isinstance(value, list | tuple):
        return value
    value = [plain(part) for part in value]
    if not value or isinstance(value[0], list | tuple):
        return value
    lengths = [len(value)] if counts is None else validated(list[int], counts, f"{where}: desc_token_counts")
    if sum(lengths) != len(value) or min(lengths) < 0:
        raise InputError(f"{where}: desc_token_counts: they add up to {sum(lengths)}, desc_logprobs has {len(value)}")
    return [value[end - n : end] for n, end in zip(lengths, accumulate(lengths), strict=True)]
