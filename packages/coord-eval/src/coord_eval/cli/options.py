"""Options that several commands share, and how they print progress and summaries."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Option

from coord_codec.commands.options import Options, option, options_of
from coord_codec.files import InputError
from coord_eval.settings import BACKEND, SCORE_SOURCE, AnswerSettings, CeilingSettings, LabelSettings

GroundTruthFile = Annotated[
    Path,
    Option(metavar="G", help="COCO annotations (.json), instance JSON lines or a prepared folder.", show_default=False),
]
PredictionsFile = Annotated[
    Path,
    Option(
        metavar="P",
        help="predictions.jsonl, a COCO results list (.json) or a folder of label files.",
        show_default=False,
    ),
]
PredictionsFiles = Annotated[
    Path,
    Option(
        metavar="P",
        help="predictions.jsonl, a COCO results list (.json), or a folder of such or of label files.",
        show_default=False,
    ),
]
ReportFolder = Annotated[Path, Option(metavar="DIR", help="Folder of the report.", show_default=False)]


def _existing_folder(path: Path | None) -> Path | None:
    if path is not None and not path.is_dir():
        raise InputError(
            f"--images: expected the folder of the images, found {'a file' if path.exists() else 'nothing'} at {path}"
        )
    return path


ImageFolder = Annotated[
    Path | None,
    Option(callback=_existing_folder, metavar="DIR", help="Folder of the images; default: that of the ground truth."),
]
OutFolder = Annotated[Path | None, Option(metavar="DIR", help="Write the result into this folder as well.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of a summary.")]
Seed = Annotated[int, Option(min=0, help="Seed of the resamples.")]


def _thresholds(values: Any) -> Any:  # not `list[float]`, which typer on Python 3.10 takes for a class
    for value in values:
        if not 0 < value <= 1:
            raise BadParameter(f"expected a number above 0 and up to 1, found {value!r}")
    return values


Thresholds = Annotated[
    list[float], Option(callback=_thresholds, metavar="T...", help="Lowest IoU at which a box is correct.")
]


RANKING = (option("score_source", str, SCORE_SOURCE),)
"""Option for the score by which boxes are sorted."""
OF_TEXT = ("format", "scale", "boxes")
"""Fields of `AnswerSettings` that every command about answers takes."""
OF_ANSWERS = (*OF_TEXT, "ignored_labels", "in_order", "fuse", "calibration")
SCORING: dict[str, Options] = {
    "answers": options_of(AnswerSettings, *OF_ANSWERS),
    "labels": options_of(LabelSettings, "synonyms", "lenient"),
    "ceiling": options_of(CeilingSettings),
}
"""Options of the records that `score` takes, of every command that scores."""
BACKENDS = (option("backend", str, BACKEND),)


def refuse_input_as_output(out: Path, *inputs: Path) -> None:
    """Refuse to write a result over one of the files that it is made of."""
    for path in inputs:
        if out.resolve() == path.resolve():
            raise InputError(f"--out: {out} is one of the inputs, which would be overwritten; name another file")


def name_and_file(argument: str) -> tuple[str, Path]:
    """Split `[NAME=]FILE`; either may contain equals signs, so the first split whose file exists counts."""
    parts = argument.split("=")
    splits = [("=".join(parts[:i]) or argument, Path("=".join(parts[i:]))) for i in range(len(parts))]
    return next(((name, file) for name, file in splits if file.is_file()), splits[-1])


def repeat_options(words: Sequence[str], *names: str) -> list[str]:
    """Turn `--iou 0.5 0.75` into `--iou 0.5 --iou 0.75`, since a typer option takes one value at a time."""
    result: list[str] = []
    option = ""
    for word in words:
        if word.startswith("-"):
            option = name if (name := word.partition("=")[0]) in names else ""
        elif option and result[-1] != option:
            result.append(option)
        result.append(word)
    return result


def print_summary(lines: Iterable[str], notes: Sequence[str]) -> None:
    """Print what a command found, and the notes on it."""
    print("\n".join([*lines, *(f"note: {note}" for note in notes)]))


class Progress:
    """Progress line of the current stage; prints nothing if stderr is not a terminal."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._active = sys.stderr.isatty()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Print the progress of a stage, at most ten times a second."""
        now = time.monotonic()
        if self._active and (now - self._shown >= 0.1 or done >= total):
            self._shown = now
            print(f"\r\x1b[K{stage} {done}/{total}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._active:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
