"""The commands `fuse` and `calibrate`: better boxes and scores from the answers that there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_eval.cli import options

if TYPE_CHECKING:
    from coord_eval.calibration.calibration import Calibration
    from coord_eval.fusion.ensemble import Ensemble

EXAMPLES_OF_FUSE = """\b
examples:
  coord-eval fuse a.jsonl b.jsonl --out fused.jsonl
  coord-eval fuse a.jsonl b.jsonl c.jsonl --method nms:0.5 --weight 2 --weight 1 --weight 1 --out fused.jsonl
  coord-eval fuse detector_a.json detector_b.json --out fused.json
"""
EXAMPLES_OF_CALIBRATE = """\b
examples:
  coord-eval calibrate --ground-truth val.json --predictions val_answers.jsonl --out calibration.json
  coord-eval score --ground-truth test.json --predictions answers.jsonl --calibration calibration.json --out report
"""


def fuse(
    runs: Annotated[list[str], typer.Argument(metavar="[NAME=]FILE...", help="Predictions of different models.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the fused predictions.", show_default=False)],
    method: Annotated[str, options.fusion_option("How boxes are fused, and above which IoU.")] = "wbf",
    weight: Annotated[
        list[float] | None, typer.Option(min=0, metavar="W", help="Weight of a file; repeat for each, in order.")
    ] = None,
    format: options.Format = "auto",
    scale: options.SetScale = None,
    boxes: options.BoxSource = "tokens",
    score_source: options.ScoreSource = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON instead of a summary.")] = False,
) -> None:
    """Fuse the answers of several models for the same images into one set (ensemble, weighted boxes fusion).

    Text answers give a predictions.jsonl whose texts are JSON with confidences, results lists a results list; both are
    read by the other commands. An image that one file does not have counts as one in which it found nothing.
    """
    from coord_eval.fusion.ensemble import fuse_predictions
    from coord_eval.intake.answers import AnswerSettings

    files: dict[str, str | Path] = {}
    for run in runs:
        name, file = options.name_and_file(run)
        if name in files:
            raise InputError(f"fuse: two files are called {name!r}; give each a name: NAME=FILE")
        files[name] = file
    options.refuse_input_as_output(out, *map(Path, files.values()))
    settings = AnswerSettings(boxes=boxes, format=format, scale=scale)
    ensemble = fuse_predictions(files, method=method, answers=settings, score_source=score_source, weights=weight)
    ensemble.write(out)
    if as_json:
        print(json.dumps({**ensemble.counts, "notes": list(ensemble.notes)}, indent=2))
    else:
        options.print_summary(_ensemble_lines(ensemble), ensemble.notes)
        print(f"fused: {out}")


def _ensemble_lines(ensemble: Ensemble) -> Iterator[str]:
    counts = ensemble.counts
    boxes, images = counted(counts["boxes"], "box", "boxes"), counted(counts["images"], "image")
    yield f"{boxes} of {images} became {counts['objects']:,}, by {counts['rule']}"
    for name, row in counts["files"].items():
        shares = [f"{row.get('merged', 0)} merged with others'"]
        shares += [f"{row['duplicate']} near-duplicates of its own"] if row.get("duplicate") else []
        shares.append(f"{row.get('alone', 0)} found by it alone")
        shares += [f"{row['dropped']} without area"] if row.get("dropped") else []
        boxes = counted(row.get("boxes", 0), "box", "boxes")
        yield f"  {name}: {boxes}: {', '.join(shares)}; scored by {row['score_source']}"


def calibrate(
    ground_truth: options.GroundTruthFile,
    predictions: options.PredictionsFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the calibration.", show_default=False)],
    settings: dict[str, Any],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the cross-validation and of the intervals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration instead of a summary.")] = False,
) -> None:
    """Fit a map from scores (confidences) to the probability of an IoU above .5 with an object of the label.

    The images must be others than those that the model was trained on. The map keeps the order of the boxes of a label,
    so AP stays the same. The reliability that is printed is cross-validated.
    """
    from coord_eval.calibration.calibration import fit_calibration
    from coord_eval.scoring import score

    options.refuse_input_as_output(out, ground_truth, predictions)
    with options.Progress() as progress:
        evaluation = score(ground_truth, predictions, diagnose=False, progress=progress, **settings)
    calibration = fit_calibration(evaluation, seed=seed)
    calibration.write(out)
    if as_json:
        print(calibration.to_json(), end="")
        return
    options.print_summary(_calibration_lines(calibration), evaluation.notes)
    print(f"calibration: {out}")


def _calibration_lines(calibration: Calibration) -> Iterator[str]:
    rests_on = calibration.rests_on
    yield (
        f"fitted to {rests_on['boxes']:,} boxes in {rests_on['images']:,} images, {rests_on['hits']:,} of them hits, "
        f"scored by {calibration.score_source}: {counted(len(calibration.knots), 'knot')}, "
        f"{counted(len(calibration.classes), 'category has', 'categories have')} a map of its own"
    )
    for title, key in (("before", "before"), ("after, cross-validated", "after")):
        row = calibration.reliability[key]
        interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
        yield f"calibration error {title}: {row['ece']:.3f}; that of more images lies in {interval}"
    asked: tuple[dict[str, Any], ...] = ({"precision": 0.9}, {"recall": 0.95}, {})
    for wanted in asked:
        title = ", ".join(f"{name} {value:g}" for name, value in wanted.items()) or "best F1"
        try:
            threshold = calibration.choose(**wanted)
        except InputError as error:
            yield f"{title}: {str(error).removeprefix('threshold: ')}"
        else:
            yield f"{title}: {threshold}" + (f"; {threshold.note}" if threshold.note else "")
