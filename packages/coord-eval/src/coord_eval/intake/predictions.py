"""Predictions of a model, text answers or boxes, as files and records state them."""

from __future__ import annotations

import csv
import io
import json
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from math import isnan
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, StrictInt
from pydantic.dataclasses import dataclass

from coord_codec.files import InputError, identifier, parse_json_line, read_json, read_json_lines, read_text
from coord_codec.json_stream import stream_list
from coord_codec.records import validated
from coord_eval.intake.library_boxes import boxes_by_image, is_by_position
from coord_eval.intake.results import ResultColumns, Results, plain_record
from coord_eval.intake.server_records import with_text
from coord_eval.parse.parser import plain


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


_PART = 1 << 13
"""Number of boxes of a results list that become columns at once."""
_Text = InstanceOf[str]
"""A file name or an answer may hold lone surrogates, which pydantic refuses to call text."""
_Id = Annotated[StrictInt | _Text, BeforeValidator(lambda v: int(v) if type(v) is float and v % 1 == 0 else v)]
_Name = Annotated[_Text, AfterValidator(_name)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Length = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# Rounding in the producer may leave the log-probability of a certain token slightly above 0.
_Log = Annotated[float, Field(le=1e-3, allow_inf_nan=False), AfterValidator(lambda v: min(v, 0.0))]
_Unit = Annotated[float, Field(ge=-1e-6, le=1 + 1e-6), AfterValidator(lambda v: min(max(v, 0.0), 1.0))]


class StatedObject(NamedTuple):
    """An object that a record states beside the text.

    Attributes:
        desc: label
        numbers: corners in pixels of the record's image
        scale: width and height of that image
        score: confidence
        points: points in [0, 1] of a shape other than a box
    """

    desc: str
    numbers: tuple[float, float, float, float]
    scale: tuple[float, float]
    score: float
    points: tuple[tuple[float, float], ...] = ()
    order: str = "xyxy"
    is_box: bool = True

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Corners in [0, 1]."""
        (x1, y1, x2, y2), (width, height) = self.numbers, self.scale
        return x1 / width, y1 / height, x2 / width, y2 / height


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
    objects: tuple[StatedObject, ...] | None = None
    thoughts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.image_id is None and self.image is None:
            raise InputError("image_id: missing, and there is no image either; name the image")


Loaded = list[Prediction] | Results
"""Text answers, or the boxes of a results list."""


def read_predictions(path: str | Path) -> Loaded:
    """Read predictions from a file.

    It is `predictions.jsonl`, JSON lines of COCO results, a JSON file with a list of either, with a COCO data set whose
    annotations have scores, or with `{image_id: text}`, a table (`.csv`, `.parquet`), or `-` for JSON lines from
    standard input.

    Raises:
        InputError: naming file, line and field
    """
    if str(path) == "-":
        lines = ((n, line) for n, line in enumerate(sys.stdin, 1) if line.strip())
        return _from_lines(((n, _json_line(line, f"standard input, line {n}")) for n, line in lines), "-")
    path = Path(path)
    kind = path.suffix.lower()
    if path.is_file() and not path.stat().st_size:
        raise InputError(f"{path}: the file is empty: expected predictions")
    if kind == ".json":
        if not _begins_with_a_bracket(path):
            return from_records(read_json(path), str(path))
        return _of_kind(stream_list(path), lambda n: f"{path}[{n}]")
    if kind == ".csv":
        return from_records(list(_csv_records(path)), str(path))
    if kind == ".parquet":
        return from_records(_parquet_records(path), str(path))
    return _from_lines(read_json_lines(path), str(path))


def _begins_with_a_bracket(path: Path) -> bool:
    """Return whether a file seems to hold a JSON list, which may be read in parts."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(64).removeprefix(BOM_UTF8).lstrip().startswith(b"[")
    return False


def _json_line(line: str, where: str) -> dict[str, Any]:
    try:
        return parse_json_line(line)
    except ValueError as error:
        raise InputError(f"{where}: {error}; write one object per line") from error


def _from_lines(lines: Iterable[tuple[int, dict[str, Any]]], source: str) -> Loaded:
    loaded = _of_kind(lines, lambda number: f"{source}, line {number}")
    if not len(loaded):
        raise InputError(f"{source}: empty: expected an answer or a result on each line")
    return loaded


def _of_kind(rows: Iterable[tuple[int, Any]], place: Callable[[int], str]) -> Loaded:
    """Return results if all records are such boxes, which the first one decides, else answers.

    Args:
        rows: number and record of each
        place: function of a number that says where its record stands
    """
    columns = ResultColumns()
    first: tuple[int, Any] | None = None
    answers: list[Prediction] = []
    remaining = iter(rows)
    while part := list(islice(remaining, _PART)):
        for number, record in part if {type(record) for _, record in part} != {dict} else ():
            if not isinstance(record, Mapping):
                raise InputError(
                    f'{place(number)}: expected an object as {{"image_id": 1, "text": "..."}}, found '
                    f"{type(record).__name__}"
                )
        first = first or part[0]
        if not _is_result(first[1]):
            answers += [_prediction(plain_record(record), place(number)) for number, record in part]
            continue
        if not all(_is_result(record) for _, record in part):
            _prediction(plain_record(first[1]), place(first[0]))  # an answer without a text: the error says so
        columns.add([record for _, record in part], [place(number) for number, _ in part])
    return answers or columns.finished()


def _csv_records(path: Path) -> Iterator[dict[str, Any]]:
    text = read_text(path)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # an answer may be longer than 131,072 characters
    rows = csv.reader(io.StringIO(text, newline=""))
    columns = next(rows, [])
    if not {"text", "bbox"} & set(columns):
        raise InputError(
            f"{path}: expected the columns image_id (or image) and text, or image_id, category_id, bbox "
            f'("[x, y, width, height]") and score, found {", ".join(columns):.80}'
        )
    for cells in filter(None, rows):
        if len(cells) != len(columns):
            raise InputError(
                f"{path}, line {rows.line_num}: expected {len(columns)} cells, found {len(cells)}; repair it"
            )
        yield _csv_record(dict(zip(columns, cells, strict=True)))


def _csv_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a CSV file: empty cells are missing; others than texts and names may be JSON."""
    record: dict[str, Any] = {}
    for key, cell in row.items():
        if cell == "":
            continue
        record[key] = cell
        if key not in ("text", "image", "finish_reason", "label"):
            with suppress(ValueError):
                record[key] = json.loads(cell)
    return record


def _parquet_records(path: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(f"{path}: parquet files need pyarrow; pip install pyarrow") from error
    try:
        records: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        fault = "no such file" if not path.exists() else str(error).splitlines()[0]
        raise InputError(f"{path}: no readable Parquet file ({fault}); write it again") from error
    return records


def _is_result(record: Mapping[str, Any]) -> bool:
    return "text" not in record and ("bbox" in record or "category_id" in record)


def _records_of(source: Any, name: str) -> Any:
    """Return the records of a table, of pycocotools' `COCO`, of a COCO data set with scores, or of texts by image."""
    if hasattr(source, "to_dict") and hasattr(source, "columns"):  # pandas, where NaN stands for a missing value
        return [{k: v for k, v in row.items() if not _is_nan(v)} for row in source.to_dict("records")]
    if isinstance(getattr(source, "dataset", None), Mapping):
        source = source.dataset
    if not isinstance(source, Mapping):
        return source
    if "annotations" in source:
        rows = source["annotations"]
        if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
            raise InputError(f"{name}, annotations: expected a list of objects, found {rows!r:.80}")
        if lacking := sum("score" not in row for row in rows):
            raise InputError(
                f"{name}: a COCO data set as predictions: expected a score in each annotation, found {lacking} of "
                f"{len(rows)} without; add scores, or pass it as ground truth"
            )
        image = _names(source.get("images"), "file_name", f"{name}, images")
        category = _names(source.get("categories"), "name", f"{name}, categories")
        named = [
            {"image": image.get(row.get("image_id")), "category": category.get(row.get("category_id"))} for row in rows
        ]
        return [{**row, **names} for row, names in zip(rows, named, strict=True)]
    if all(isinstance(text, str) for text in source.values()):
        return [{"image_id": image, "text": text} for image, text in source.items()]
    raise InputError(
        f"{name}: expected a list of results or answers, or {{image_id: text}}, found an object with the keys "
        f"{', '.join(map(str, list(source)[:5]))}"
    )


def _names(rows: Any, field: str, where: str) -> dict[Any, str]:
    """Return the names of the images or categories of a data set by id."""
    names: dict[Any, str] = {}
    for row in rows if isinstance(rows, list | tuple) else ():
        key, name = (row.get("id"), row.get(field)) if isinstance(row, Mapping) else (None, None)
        if isinstance(name, str) and name and names.setdefault(identifier(key, f"{where}, id"), name) != name:
            raise InputError(f"{where}: the id {key!r} is {names[key]!r} and {name!r}; ids must be unique")
    return names


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def from_records(records: Iterable[Mapping[str, Any]] | Mapping[Any, Any], source: str = "predictions") -> Loaded:
    """Turn dictionaries into predictions, or into COCO results if they have a `bbox` and no `text`.

    A pandas table, pycocotools' `COCO` with scores, a COCO data set with scores, `{image_id: text}`, supervision's
    `[(image_id, Detections), ...]` and torchmetrics' dictionaries are accepted too; boxes without a confidence get 1.
    An empty list is an empty results list.

    Raises:
        InputError: naming record and field
    """
    found = boxes_by_image(records, source)
    if found is not None:
        columns = ResultColumns()
        for image_id, own in found:
            places = [f"{source}, image {image_id!r}"] * len(own)
            columns.add([{"score": 1.0, **row, "image_id": image_id} for row in own], places)
        return columns.finished(len(found) if is_by_position(records) else None)
    records = _records_of(records, source)
    if isinstance(records, str | bytes) or not isinstance(records, Iterable):
        raise InputError(f"{source}: expected a list of results or answers, found {type(records).__name__}")
    return _of_kind(enumerate(records), lambda position: f"{source}[{position}]")


def _prediction(record: Mapping[str, Any], where: str) -> Prediction:
    values = dict(record)
    if values.get("text") is None and values.get("finish_reason") == "error":
        values["text"] = ""
    values = with_text(values, where)
    size = (values.get("input_width"), values.get("input_height"))
    stated = {"input_size": size if all(size) else None, "desc_logprobs": _by_object(record, where), "where": where}
    return validated(Prediction, {**values, **stated, "objects": _stated_objects(record, where)}, where)


def _stated_objects(record: Mapping[str, Any], where: str) -> list[StatedObject] | None:
    """Return the objects of a record that were fused of several answers; None if the record has no `fused`."""
    if record.get("fused") is None:
        return None
    width, height = record.get("width"), record.get("height")
    if record.get("objects") is None or not width or not height:
        raise InputError(f"{where}: fused: expected objects, and the width and height of the image beside it")
    objects = []
    for row in validated(tuple[_Object, ...], record["objects"], f"{where}: objects"):
        points = tuple((x / width, y / height) for x, y in row.points_xy)
        objects.append(StatedObject(row.desc, row.bbox_xyxy, (width, height), row.score, points))
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
