"""Options that several commands share, and how they print progress and summaries."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import BadParameter, Option

from coord_codec import GEOMETRIES
from coord_codec.files import InputError, read_json

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


def _known_format(name: str) -> str:
    if name == "auto":
        return name
    from coord_eval.parse.formats import FORMATS

    if name not in FORMATS:
        raise BadParameter(f"expected one of auto, {', '.join(FORMATS)}, found {name!r}")
    return name


Format = Annotated[
    str,
    Option(callback=_known_format, metavar="F", help="Format of the answers (names in the README); auto detects it."),
]
Scale = float | str | None


def scale_option(*names: str) -> Any:
    """Return the option `--scale`, which takes a positive number or one of the names."""

    def parse(text: str) -> float | str:
        if text in names:
            return text
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise BadParameter(f"expected {' or '.join(['a positive number', *names])}, found {text!r}")
        return value

    help_text = "Divisor of plain numbers: {} or {}. Without it 1000 is assumed and a note says so."
    return Option(parser=parse, metavar="S", help=help_text.format(", ".join(["a number", *names[:-1]]), names[-1]))


SetScale = Annotated[Any, scale_option("pixels", "input_pixels", "infer")]


def _known_geometry(name: str) -> str:
    if name not in GEOMETRIES:
        raise BadParameter(f"expected one of {', '.join(GEOMETRIES)}, found {name!r}")
    return name


GeometryOfAnswers = Annotated[
    str,
    Option(
        callback=_known_geometry,
        metavar=f"[{'|'.join(GEOMETRIES)}]",
        help="Geometry of the objects in the answers; shapes are scored, and their bounding boxes too.",
    ),
]


def _thresholds(values: Any) -> Any:  # not `list[float]`, which typer on Python 3.10 takes for a class
    for value in values:
        if not 0 < value <= 1:
            raise BadParameter(f"expected a number above 0 and up to 1, found {value!r}")
    return values


Thresholds = Annotated[
    list[float], Option(callback=_thresholds, metavar="T...", help="Lowest IoU at which a box is correct.")
]


BoxSource = Annotated[
    Literal["tokens", "expected", "median", "best_iou"],
    Option(
        help="Source of the boxes: the tokens of the text, coord_expected, or coord_quantiles (the medians, or the "
        "box of the highest expected IoU)."
    ),
]
ScoreSource = Annotated[
    Literal[
        "auto",
        "expected_iou",
        "hit_probability",
        "coord_logprobs",
        "coord_desc_logprobs",
        "coord_min",
        "stated",
        "emission_rank",
        "constant",
    ],
    Option(help="Score by which boxes are sorted."),
]


def answers(
    format: Format = "auto",
    scale: SetScale = None,
    boxes: BoxSource = "tokens",
    synonyms: Annotated[
        Path | None, Option(metavar="FILE", help='Other names of categories: JSON {"category": ["other name"]}.')
    ] = None,
    score_source: ScoreSource = "auto",
) -> dict[str, Any]:
    """Return the keyword arguments of the scoring functions that concern the text of answers."""
    settings = dict(locals())
    if synonyms is not None:
        from coord_codec.records import validated

        settings["synonyms"] = validated(dict[str, list[str]], read_json(synonyms), str(synonyms))
    return settings


def _fusion_rule(text: str | None) -> str | None:
    if text is not None:
        from coord_eval.fusion.columns import FusionRule

        FusionRule.parse(text)
    return text


def fusion_option(help_text: str) -> Any:
    """Return the option of a method of fusion, with an IoU."""
    return Option(callback=_fusion_rule, metavar="nms|wbf[:IOU]", help=help_text)


def scoring(
    backend: Annotated[
        Literal["coord_eval", "pycocotools"], Option(help="What computes the COCO metrics; the values are the same.")
    ] = "coord_eval",
    lenient: Annotated[
        bool, Option("--lenient", help="Leave out faulty records of the ground truth and count them.")
    ] = False,
    markers: Annotated[Literal["obj", "qwen"], Option(help="Marker family of the ceiling.")] = "obj",
    max_objects: Annotated[
        int | None, Option(min=1, metavar="N", help="Object limit of the ceiling; use that of the training.")
    ] = None,
    order: Annotated[
        Literal["top_left", "given", "random", "size"],
        Option(help="Object order of the ceiling; use that of the training."),
    ] = "top_left",
    ignored_labels: Annotated[
        list[str] | None,
        Option("--ignore-label", metavar="L", help="A label that names no object, such as noise; repeatable."),
    ] = None,
    in_order: Annotated[
        bool, Option("--in-order", help="Answers name no images: they stand in the order of the ground truth's file.")
    ] = False,
    fuse: Annotated[
        str | None, fusion_option("Fuse near-duplicates of one label within each answer, before it is scored.")
    ] = None,
    calibration: Annotated[
        Path | None, Option(metavar="FILE", help="Map scores to probabilities, as `coord-eval calibrate` fitted them.")
    ] = None,
) -> dict[str, Any]:
    """Return the further keyword arguments of `coord_eval.score`, which `answers` does not return."""
    return {**locals(), "ignored_labels": ignored_labels or ()}


def refuse_input_as_output(out: Path, *inputs: Path) -> None:
    """Refuse to write a result over one of the files that it is made of."""
    for path in inputs:
        if out.resolve() == path.resolve():
            raise InputError(f"--out: {out} is one of the inputs, which would be overwritten; name another file")


def parameters(
    iou: Annotated[list[float] | None, Option(metavar="T...", help="Additional IoU thresholds for AP and AR.")] = None,
    max_dets: Annotated[
        list[int] | None, Option(metavar="N...", help="Additional limits on the boxes of one label and image.")
    ] = None,
    area: Annotated[
        list[str] | None, Option(metavar="NAME=LOW:HIGH", help="An additional area range in square pixels; repeatable.")
    ] = None,
) -> dict[str, Any]:
    """Return `params` of `coord_eval.score`; None without an option, so that only COCO's own are used."""
    from coord_eval.metrics.coco_own import CocoParams

    if not (iou or max_dets or area):
        return {"params": None}
    areas = {}
    for text in area or ():
        name, _, bounds = text.partition("=")
        try:
            low, high = map(float, bounds.split(":"))
        except ValueError:
            raise BadParameter(f"--area: expected NAME=LOW:HIGH, found {text!r}") from None
        areas[name] = (low, high)
    params: dict[str, Any] = {"iou_thresholds": iou, "max_detections": max_dets, "areas": areas}
    return {"params": CocoParams(**{name: value for name, value in params.items() if value})}


def takes(*groups: Callable[..., dict[str, Any]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of each group to a command; their values, as the groups return them, are passed as `settings`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shared = {group: list(signature(group).parameters) for group in groups}

        def run(**values: Any) -> None:
            settings: dict[str, Any] = {}
            for group, names in shared.items():
                settings |= group(**{name: values.pop(name) for name in names})
            command(**values, settings=settings)

        # typer builds the command line from names, annotations and defaults.
        all_parameters = [p for f in (command, *groups) for p in signature(f, eval_str=True).parameters.values()]
        parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in all_parameters if p.name != "settings"]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


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
