"""Predictions of a model, text answers or boxes, as files and records state them."""

from __future__ import annotations

import csv
import io
import json
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, repeat
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from coord_codec.counts import counted
from coord_codec.files import InputError, identifier, parse_json_line, read_json, read_json_lines, read_text
from coord_codec.json_stream import stream_list
from coord_eval.intake.label_files import read_text_files
from coord_eval.intake.library_boxes import boxes_by_image, is_by_position, of_results
from coord_eval.intake.results import ResultColumns, ResultsList, plain_record
from coord_eval.intake.stated_shapes import SHAPES

if TYPE_CHECKING:
    from coord_eval.intake.prediction import Prediction


_PART = 1 << 13
"""Number of boxes of a results list that become columns at once."""
Order: TypeAlias = "Sequence[int | str] | None"
"""Ids of the images whose answers stand in that order and name none; None if answers name their images."""
Loaded: TypeAlias = "list[Prediction] | ResultsList"
"""Text answers, or the boxes of a results list."""


def read_predictions(path: str | Path, order: Order = None) -> Loaded:
    """Read predictions from a file; with an order of images, answers that name none are those of these images.

    It is `predictions.jsonl`, JSON lines of COCO results, a JSON file with a list of either, with a COCO data set whose
    annotations have scores, or with `{image_id: text}`, a table (`.csv`, `.parquet`), or `-` for JSON lines from
    standard input. A folder is one of label files, as `read_text_files` reads it, and a `.txt` a file of MOT results.

    Raises:
        InputError: naming file, line and field
    """
    if str(path) == "-":
        lines = ((n, line) for n, line in enumerate(sys.stdin, 1) if line.strip())
        return _from_lines(((n, _json_line(line, f"standard input, line {n}")) for n, line in lines), "-", order)
    path = Path(path)
    kind = path.suffix.lower()
    if path.is_dir() or kind == ".txt":
        return read_text_files(path)
    if path.is_file() and not path.stat().st_size:
        raise InputError(f"{path}: the file is empty: expected predictions")
    if kind == ".json":
        if not _begins_with_a_bracket(path):
            return from_records(read_json(path), str(path), order)
        parts = ((range(first, first + len(rows)), rows) for first, rows in stream_list(path))
        return _of_kind(parts, lambda n: f"{path}[{n}]", order)
    if kind == ".csv":
        return from_records(list(_csv_records(path)), str(path), order)
    if kind == ".parquet":
        return from_records(_parquet_records(path), str(path), order)
    return _from_lines(read_json_lines(path), str(path), order)


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


def _from_lines(lines: Iterable[tuple[int, dict[str, Any]]], source: str, order: Order) -> Loaded:
    loaded = _of_kind(_in_parts(lines), lambda number: f"{source}, line {number}", order)
    if not len(loaded):
        raise InputError(f"{source}: empty: expected an answer or a result on each line")
    return loaded


def _in_parts(rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
    remaining = iter(rows)
    while part := list(islice(remaining, _PART)):
        numbers, records = zip(*part, strict=True)
        yield numbers, records


def _of_kind(
    parts: Iterable[tuple[Sequence[int], Sequence[Any]]], place: Callable[[int], str], order: Order = None
) -> Loaded:
    """Return results if all records are such boxes, which the first one decides, else answers.

    The parts are some numbers and records at a time; `place` says where the record of a number stands.
    """
    columns = ResultColumns()
    first: tuple[int, Any] | None = None
    answers: list[Prediction] = []
    for numbers, records in parts:
        for number, record in zip(numbers, records, strict=True) if {*map(type, records)} != {dict} else ():
            if not isinstance(record, Mapping):
                raise InputError(
                    f'{place(number)}: expected an object as {{"image_id": 1, "text": "..."}}, found '
                    f"{type(record).__name__}"
                )
        first = first or (numbers[0], records[0])
        if _is_result(first[1]) and columns.add_usual(records):
            continue
        from coord_eval.intake.prediction import prediction_of  # pydantic, which boxes do not need

        if not _is_result(first[1]):
            # Too many answers are refused below, where their number is known.
            unnamed = chain((order or ())[len(answers) :], repeat(None if order is None else ""))
            rows = zip(numbers, records, unnamed)  # noqa: B905
            answers += [prediction_of(plain_record(r), place(n), image_id) for n, r, image_id in rows]
            continue
        if not all(map(_is_result, records)):
            prediction_of(plain_record(first[1]), place(first[0]))  # an answer without a text: the error says so
        columns.add(records, map(place, numbers))
    if answers and order is not None and len(answers) != len(order):
        found, images = counted(len(answers), "answer"), counted(len(order), "image")
        raise InputError(f"in_order: {found} for {images} of the ground truth; answers in its order are as many")
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
    return "text" not in record and any(key in record for key in ("bbox", "category_id", *SHAPES))


def _records_of(source: Any, name: str) -> Any:
    """Return the records of a table, of pycocotools' `COCO`, of a COCO data set with scores, or of texts by image."""
    if hasattr(source, "to_dict") and hasattr(source, "columns"):  # pandas, where NaN stands for a missing value
        rows = source.to_dict("records")
        return [{k: v for k, v in row.items() if not (isinstance(v, float) and isnan(v))} for row in rows]
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


def from_records(
    records: Iterable[Mapping[str, Any]] | Mapping[Any, Any], source: str = "predictions", order: Order = None
) -> Loaded:
    """Turn dictionaries into predictions, or into COCO results if they have a `bbox` and no `text`.

    A pandas table, pycocotools' `COCO` with scores, a COCO data set with scores, `{image_id: text}`, supervision's
    `[(image_id, Detections), ...]`, torchmetrics' dictionaries and the results of a `Detector` are accepted too; boxes
    without a confidence get 1. An empty list is an empty results list.

    Raises:
        InputError: naming record and field
    """
    if (results := of_results(records)) is not None:
        rows, images = results
        columns = ResultColumns()
        columns.add(rows, [f"{source}, image {row['image']!r}" for row in rows])
        return columns.finished(images=images)
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
    return _of_kind(_in_parts(enumerate(records)), lambda position: f"{source}[{position}]", order)
