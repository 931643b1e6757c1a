"""``coord-eval parse``: what the parser makes of answers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from coord_eval.answer import Answer
from coord_eval.cli_options import add_format
from coord_eval.errors import InputError
from coord_eval.parsing import parse_answer
from coord_eval.reading import read_json_lines, read_text

_EPILOG = """examples:
  coord-eval parse answer.txt
  coord-eval parse predictions.jsonl --json | head -1
  echo '[{"bbox_2d": [12, 34, 56, 78], "label": "cat"}]' | coord-eval parse -"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "parse",
        help="show what the parser makes of answers",
        description="Show objects and drops of one answer (a text file, - for standard input) or of every "
        "answer of a predictions.jsonl.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="text file, predictions .jsonl, or -")
    add_format(parser)
    parser.add_argument(
        "--image-size", nargs=2, type=float, metavar=("W", "H"), help="picture size for --scale pixels"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object an answer")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.scale == "pixels" and options.image_size is None:
        raise InputError("--scale pixels: --image-size W H is needed to place pixels")
    size = tuple(options.image_size) if options.image_size else None
    for name, text in _texts(options.file):
        try:
            answer = parse_answer(text, options.format, scale=options.scale, image_size=size)
        except ValueError as error:
            raise InputError(str(error)) from error
        if options.json:
            print(json.dumps({"answer": name, **asdict(answer)}))
        else:
            print("\n".join(_lines(name, answer, text)))
    return 0


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    if str(path) == "-":
        yield "-", sys.stdin.read()
    elif path.suffix == ".jsonl":
        for number, record in read_json_lines(path):
            if not isinstance(record.get("text"), str):
                raise InputError(f"{path}, line {number}, text: expected the answer as text")
            yield str(record.get("image_id", record.get("image", number))), record["text"]
    else:
        yield str(path), read_text(path)


def _lines(name: str, answer: Answer, text: str) -> Iterator[str]:
    cut = ", truncated" if answer.truncated else ""
    yield f"{name}: {answer.status}{cut}, format {answer.format}, {len(answer)} objects"
    if answer.scale is not None:
        how = "assumed" if answer.scale_assumed else "given"
        yield f"  plain numbers divided by {answer.scale[0]:g}, {answer.scale[1]:g} ({how})"
    for item in answer:
        box = " ".join(f"{value:.3f}" for value in item.box)
        state = item.completeness + (f" ({', '.join(item.repairs)})" if item.repairs else "")
        yield f"  {box}  {item.desc!r}  {state}"
    for drop in answer.dropped:
        yield f"  dropped: {drop.reason} at {drop.span[0]}..{drop.span[1]}: {text[slice(*drop.span)]!r:.80}"
