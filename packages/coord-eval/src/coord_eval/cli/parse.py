"""The `parse` command: parses the text of answers and prints their objects."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from coord_codec.commands.options import option, options_of, with_options
from coord_codec.counts import counted
from coord_codec.files import InputError, read_json_lines, read_text
from coord_codec.settings import Setting
from coord_eval.intake.server_records import with_text
from coord_eval.parse.answer import DROP_REASONS, Answer, without_other_images, without_points
from coord_eval.settings import AnswerSettings, number_or

SCALE = option(
    "scale",
    str,
    Setting(
        "Divisor of plain numbers: a number or pixels. Without it 1000 is assumed and a note says so.",
        None,
        metavar="S",
        read=number_or("pixels"),
    ),
)
EXAMPLES_OF_PARSE = """\b
examples:
  coord-eval parse answer.txt
  coord-eval parse predictions.jsonl --json | head -1
  echo '[{"bbox_2d": [12, 34, 56, 78], "label": "cat"}]' | coord-eval parse -
"""


@with_options((SCALE,), answers=options_of(AnswerSettings, "format", "geometry"))
def parse(
    file: Annotated[Path, typer.Argument(help="Text file, predictions .jsonl, or - for standard input.")],
    image_size: Annotated[
        tuple[float, float] | None, typer.Option(metavar="W H", help="Image size for --scale pixels.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each answer.")] = False,
    *,
    scale: Any,
    answers: AnswerSettings,
) -> None:
    """Parse answers and print their objects and drops.

    The input is the text of one answer, or a predictions.jsonl with many.
    """
    from coord_eval.parse.parser import parse_answer

    if scale == "pixels" and image_size is None:
        raise InputError("--scale pixels: needs the size of the image; add --image-size W H")
    geometry = answers.shape
    for name, text in _texts(file):
        try:
            answer = parse_answer(text, answers.format, scale=scale, image_size=image_size, geometry=geometry)
        except ValueError as error:
            raise InputError(str(error)) from error
        answer = without_other_images(without_points(answer, geometry))
        if as_json:
            objects = [item._asdict() for item in answer]
            print(json.dumps({"answer": name, **asdict(answer), "objects": objects}))
        else:
            print("\n".join(_answer_lines(name, answer, text)))


def _answer_lines(name: str, answer: Answer, text: str) -> Iterator[str]:
    cut = ", truncated" if answer.truncated else ""
    yield f"{name}: {answer.status}{cut}, format {answer.format}, {counted(len(answer), 'object')}"
    if answer.scale is not None:
        origin = "assumed" if answer.scale_assumed else "given"
        yield f"  plain numbers divided by {answer.scale[0]:g}, {answer.scale[1]:g} ({origin})"
    for item in answer:
        box = " ".join(f"{value:.3f}" for value in item.box)
        state = item.completeness + (f" ({', '.join(item.repairs)})" if item.repairs else "")
        yield f"  {box}  {item.desc!r}  {state}"
    for drop in answer.dropped:
        yield f"  dropped: {drop.reason} at {drop.span[0]}..{drop.span[1]}: {text[slice(*drop.span)]!r:.80}"
    if any(drop.reason == "point" for drop in answer.dropped):
        yield f"  {DROP_REASONS['point']}"


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    if str(path) == "-":
        try:
            yield "-", sys.stdin.read().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise InputError(f"standard input: not {error.encoding.upper()} text (byte {error.start})") from error
        return
    if path.suffix.lower() == ".jsonl":
        for number, record in read_json_lines(path):
            yield _text_of(record, number, f"{path}, line {number}")
        return
    text = read_text(path)
    records = _records(text)
    if records and all(record.keys() >= {"image_id", "category_id", "bbox"} for record in records):
        raise InputError(
            f"{path}: expected the text of an answer, found a COCO results list, which needs no parser; "
            "`coord-eval score --predictions` takes it as it is"
        )
    if records and all("text" in record and record.keys() & {"image_id", "image"} for record in records):
        yield from (_text_of(record, i, f"{path}[{i}]") for i, record in enumerate(records))
    else:
        yield str(path), text


def _text_of(record: dict[str, Any], number: int, where: str) -> tuple[str, str]:
    """Return name and text of the record of an answer; an answer that failed may have no text."""
    failed = record.get("text") is None and record.get("finish_reason") == "error"
    record = {**record, "text": ""} if failed else with_text(record, where)
    names = (record.get("image_id"), record.get("image"), number)  # `predict` writes null for images without an id
    return str(next(name for name in names if name is not None)), record["text"]


def _records(text: str) -> list[dict[str, Any]]:
    """Return the records of a JSON list of objects, empty for any other text, such as that of an answer."""
    try:
        records = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: nested too deeply for the JSON decoder
        return []
    is_list = isinstance(records, list) and all(isinstance(record, dict) for record in records)
    return records if is_list else []
