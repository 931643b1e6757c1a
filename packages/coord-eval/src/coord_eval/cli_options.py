"""Options that several commands share, and progress on a terminal."""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from coord_codec import MARKERS
from coord_eval.coco import BACKENDS
from coord_eval.errors import InputError
from coord_eval.expected import BOX_SOURCES
from coord_eval.parsing import FORMATS
from coord_eval.ranking import SCORE_SOURCES
from coord_eval.reading import read_json
from coord_eval.writing import write_text


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add ground truth, predictions and how answers are read."""
    parser.add_argument(
        "--ground-truth", required=True, type=Path, metavar="G", help="COCO .json or instance .jsonl"
    )
    parser.add_argument(
        "--predictions", required=True, type=Path, metavar="P", help="predictions.jsonl or COCO results .json"
    )
    add_reading(parser)
    add_backend(parser)
    add_ceiling(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add how answers are read, labelled and ranked."""
    add_format(parser, ("pixels", "input_pixels", "infer"))
    parser.add_argument(
        "--boxes", default="tokens", choices=BOX_SOURCES, help="what boxes are read from (default: tokens)"
    )
    parser.add_argument("--synonyms", type=Path, metavar="FILE", help='JSON {"category": ["other name"]}')
    parser.add_argument(
        "--score-source",
        default="auto",
        choices=["auto", *(name for name in SCORE_SOURCES if name != "results")],
        help="what boxes are ranked by (default: auto)",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add what computes COCO's numbers."""
    parser.add_argument("--backend", default="pycocotools", choices=BACKENDS, help="default: pycocotools")


def add_ceiling(parser: argparse.ArgumentParser) -> None:
    """Add what the ceiling depends on."""
    ceiling = parser.add_argument_group("ceiling", "how the model was trained to answer")
    ceiling.add_argument("--markers", default="obj", choices=sorted(MARKERS), help="default: obj")
    ceiling.add_argument("--max-objects", type=positive, metavar="N", help="object limit (default: none)")
    ceiling.add_argument(
        "--order", default="top_left", choices=["top_left", "given", "random", "size"], help="object order"
    )


def add_format(parser: argparse.ArgumentParser, scales: tuple[str, ...] = ("pixels",)) -> None:
    """Add format and scale of the answers."""
    parser.add_argument(
        "--format", default="auto", choices=["auto", *FORMATS], help="format of the answers (default: auto)"
    )
    parser.add_argument(
        "--scale",
        type=partial(_scale, names=scales),
        metavar="S",
        help=f"what plain numbers are divided by: a number, {' or '.join(scales)} (default: 1000, with a note)",
    )


def score_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of :func:`coord_eval.score` that the options stand for."""
    return {
        **reading_options(options),
        "backend": options.backend,
        "markers": options.markers,
        "max_objects": options.max_objects,
        "order": options.order,
    }


def reading_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return those of them that say how answers are read, labelled and ranked."""
    return {
        "format": options.format,
        "scale": options.scale,
        "boxes": options.boxes,
        "score_source": options.score_source,
        "synonyms": _synonyms(options.synonyms),
    }


def _synonyms(path: Path | None) -> dict[str, list[str]] | None:
    if path is None:
        return None
    data = read_json(path)
    lists = data.values() if isinstance(data, dict) else [None]
    if not all(isinstance(v, list) and all(isinstance(name, str) for name in v) for v in lists):
        raise InputError(f'{path}: expected {{"category": ["other name", ...]}}, found {data!s:.80}')
    return dict(data)


def positive(text: str) -> int:
    """Read a whole number above 0."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return value


def _scale(text: str, names: tuple[str, ...]) -> float | str:
    if text in names:
        return text
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        expected = " or ".join(["a positive number", *names])
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
    return value


class Progress:
    """A line on a terminal that says how far a stage is; silent where stderr is no terminal."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._active = sys.stderr.isatty()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show a stage at most ten times a second."""
        now = time.monotonic()
        if not self._active or (now - self._shown < 0.1 and done < total):
            return
        self._shown = now
        sys.stderr.write(f"\r\x1b[K{stage} {done}/{total}")
        sys.stderr.flush()

    def close(self) -> None:
        """Clear the line."""
        if self._active:
            sys.stderr.write("\r\x1b[K")


def tell(options: argparse.Namespace, file: str, values: dict[str, Any], summary: str) -> int:
    """Write the values to ``--out`` where it is given, print them under ``--json`` and the summary otherwise."""
    text = json.dumps(values, indent=2, allow_nan=False)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_text(options.out / file, text + "\n")
    print(text if options.json else summary)
    return 0
