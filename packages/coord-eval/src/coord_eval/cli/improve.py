"""The commands `fuse` and `calibrate`: better boxes and scores from the answers that there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coord_codec.commands.options import option, options_of, with_options
from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_eval.cli import options
from coord_eval.settings import METHOD, AnswerSettings, ReportSettings

if TYPE_CHECKING:
    from coord_eval.fusion.ensemble import Ensemble

EXAMPLES_OF_FUSE = """\b
examples:
  coord-eval fuse a.jsonl b.jsonl --out fused.jsonl
  coord-eval fuse a.jsonl b.jsonl c.jsonl --method nms:0.5 --weight 2 --weight 1 --weight 1 --out fused.jsonl
  coord-eval fuse detector_a.json detector_b.json --out fused.json --ground-truth some_of_them.json
"""
EXAMPLES_OF_CALIBRATE = """\b
examples:
  coord-eval calibrate --ground-truth val.json --predictions val_answers.jsonl --out calibration.json
  coord-eval score --ground-truth test.json --predictions answers.jsonl --calibration calibration.json --out report
"""


@with_options(
    (option("method", str, replace(METHOD, text="How boxes are fused, and above which IoU.", default="wbf")),),
    options.RANKING,
    answers=options_of(AnswerSettings, *options.OF_TEXT),
)
def fuse(
    runs: Annotated[list[str], typer.Argument(metavar="[NAME=]FILE...", help="Predictions of different models.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the fused predictions.", show_default=False)],
    ground_truth: Annotated[
        Path | None,
        typer.Option(metavar="G", help="Annotations of some of the images: chooses calibration and weights by them."),
    ] = None,
    weight: Annotated[
        list[float] | None, typer.Option(min=0, metavar="W", help="Weight of a file; repeat for each, in order.")
    ] = None,
    calibration: Annotated[
        list[str] | None, typer.Option(metavar="NAME=C", help="Calibration of the file of that name; repeat for each.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON instead of a summary.")] = False,
    *,
    method: str,
    answers: AnswerSettings,
    score_source: str,
) -> None:
    """Fuse the answers of several models for the same images into one set (ensemble, weighted boxes fusion).

    Text answers give a predictions.jsonl whose texts are JSON with confidences, results lists a results list; both are
    read by the other commands. An image that one file does not have counts as one in which it found nothing.
    Fusing may give less than the better file alone; --ground-truth, for some of the images, tries both raw and
    calibrated scores and several weights, says what AP to expect of each, and keeps the better file where no fusion
    is surely better.
    """
    from coord_eval.calibration.calibration import Calibration
    from coord_eval.fusion.choice import FusionChoice, choose_fusion
    from coord_eval.fusion.ensemble import fuse_predictions
    from coord_eval.scoring import score
    from coord_eval.settings import FusionRule

    files: dict[str, str | Path] = {}
    for run in runs:
        name, file = options.name_and_file(run)
        if name in files:
            raise InputError(f"fuse: two files are called {name!r}; give each a name: NAME=FILE")
        files[name] = file
    calibrations = dict(map(options.name_and_file, calibration or ()))
    if calibrations and ground_truth:
        raise InputError("fuse: --calibration has no place beside --ground-truth, which fits its own; leave one out")
    inputs = [*files.values(), *calibrations.values(), *([ground_truth] if ground_truth else [])]
    options.refuse_input_as_output(out, *map(Path, inputs))
    choice: FusionChoice | None = None
    if ground_truth:
        asked: dict[str, Any] = {"score_source": score_source, "answers": answers}
        report = ReportSettings(diagnose=False)
        rated = {name: score(ground_truth, file, report=report, **asked) for name, file in files.items()}
        choice = choose_fusion(rated, FusionRule.parse(method), weights=weight)
    chosen = choice.chosen if choice else None
    ensemble = fuse_predictions(
        files,
        method=method,
        answers=answers,
        score_source=score_source,
        weights=chosen.weights if chosen else weight,
        calibrations=choice.calibrations if choice else {n: Calibration.read(file) for n, file in calibrations.items()},
        alone=chosen.alone if chosen else None,
    )
    ensemble.write(out)
    notes = [*(choice.notes if choice else ()), *ensemble.notes]
    if as_json:
        told = {"choice": asdict(choice) | {"calibrations": [*choice.calibrations]}} if choice else {}
        print(json.dumps({**ensemble.counts, **told, "notes": notes}, indent=2))
    else:
        options.print_summary([*(choice.lines() if choice else ()), *_ensemble_lines(ensemble)], notes)
        print(f"fused: {out}")


def _ensemble_lines(ensemble: Ensemble) -> Iterator[str]:
    counts = ensemble.counts
    boxes, images = counted(counts["boxes"], "box", "boxes"), counted(counts["images"], "image")
    yield f"{boxes} of {images} became {counts['objects']:,}, by {counts['rule']}"
    if counts["rule"].endswith(" alone"):
        return
    for name, row in counts["files"].items():
        shares = [f"{row.get('merged', 0)} merged with others'"]
        shares += [f"{row['duplicate']} near-duplicates of its own"] if row.get("duplicate") else []
        shares.append(f"{row.get('alone', 0)} found by it alone")
        shares += [f"{row['dropped']} without area"] if row.get("dropped") else []
        boxes = counted(row.get("boxes", 0), "box", "boxes")
        yield f"  {name}: {boxes}: {', '.join(shares)}; scored by {row['score_source']}"


@with_options(options.RANKING, options.BACKENDS, **options.SCORING)
def calibrate(
    ground_truth: options.GroundTruthFile,
    predictions: options.PredictionsFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the calibration.", show_default=False)],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the cross-validation and of the intervals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration instead of a summary.")] = False,
    **settings: Any,
) -> None:
    """Fit a map from scores (confidences) to the probability of an IoU above .5 with an object of the label.

    The images must be others than those that the model was trained on. The map keeps the order of the boxes of a label,
    so AP stays the same. The reliability that is printed is cross-validated.
    """
    from coord_eval.calibration.calibration import fit_calibration
    from coord_eval.scoring import score

    options.refuse_input_as_output(out, ground_truth, predictions)
    with options.Progress() as progress:
        report = ReportSettings(diagnose=False, progress=progress)
        evaluation = score(ground_truth, predictions, report=report, **settings)
    calibration = fit_calibration(evaluation, seed=seed)
    calibration.write(out)
    if as_json:
        print(calibration.to_json(), end="")
        return
    options.print_summary(calibration.lines(), evaluation.notes)
    print(f"calibration: {out}")
