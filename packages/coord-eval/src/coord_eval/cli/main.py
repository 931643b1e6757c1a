"""The `coord-eval` command. Exit codes: 0 done, 1 failed while running, 2 bad usage or bad input, 130 interrupted.

Modules that need NumPy or pycocotools are imported inside the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from coord_codec.commands.options import options_of, with_options
from coord_codec.commands.plugins import import_plugins
from coord_codec.commands.program import Commands, version_option
from coord_codec.files import InputError, write_text
from coord_eval.cli import options
from coord_eval.cli.improve import EXAMPLES_OF_CALIBRATE, EXAMPLES_OF_FUSE, calibrate, fuse
from coord_eval.cli.parse import EXAMPLES_OF_PARSE, parse
from coord_eval.cli.review import app as review_app
from coord_eval.settings import AnswerSettings, CocoParams, LabelSettings, ReportSettings

app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Parse the boxes that a vision-language model wrote as text and score them as COCO does.",
    epilog="""\b
examples:
  coord-eval score --ground-truth instances.json --predictions predictions.jsonl --out report
  coord-eval parse answers.txt
  coord-eval compare --ground-truth instances.json base=a.jsonl new=b.jsonl
  coord-eval view --ground-truth instances.json --predictions predictions.jsonl --out images --count 40
  coord-eval lvis --ground-truth lvis_v1_val.json --predictions predictions.jsonl
  coord-eval expressions --ground-truth refcoco_val.jsonl --predictions predictions.jsonl
  coord-eval fuse a.jsonl b.jsonl --out fused.jsonl
  coord-eval calibrate --ground-truth instances.json --predictions predictions.jsonl --out calibration.json
  coord-eval review --ground-truth instances.json --predictions predictions.jsonl --out review
  coord-eval review apply decisions.json --ground-truth instances.json --out corrected.json

exit codes: 0 done, 1 failed while running, 2 bad usage or bad input, 130 interrupted""",
)


@app.callback()
def _common(
    version: Annotated[bool, version_option("coord-eval")] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A Python file that registers formats, metrics or geometries of your own."),
    ] = None,
) -> None:
    import_plugins(plugin or ())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a model wrote may have no form in the terminal's encoding: other scripts, and lone surrogates in UTF-8.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        typer.main.get_command(app)(
            args=options.repeat_options(words, "--iou", "--max-dets", "--weight"), prog_name="coord-eval"
        )
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


@app.command(
    epilog="""\b
examples:
  coord-eval score --ground-truth instances.json --predictions predictions.jsonl --out report
  coord-eval score --ground-truth val.jsonl --predictions p.jsonl --out r --max-objects 30 --images photos
  coord-eval score --ground-truth instances.json --predictions detector_results.json --out report --json
"""
)
@with_options(
    options.RANKING,
    options.BACKENDS,
    **options.SCORING | {"answers": options_of(AnswerSettings, *options.OF_ANSWERS, "geometry")},
    report=options_of(ReportSettings, "bootstrap", "seed", "diagnose"),
    params=options_of(CocoParams),
)
def score(
    ground_truth: options.GroundTruthFile,
    predictions: options.PredictionsFiles,
    out: options.ReportFolder,
    *,
    report: ReportSettings,
    params: CocoParams,
    images: options.ImageFolder = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Write CSV files, COCO results and FiftyOne labels as well.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--report/--no-report", help="Write report.html beside evaluation.json, which takes longer.")
    ] = True,
    as_json: options.AsJson = False,
    **settings: Any,
) -> None:
    """Score answers against ground truth (mAP, true and false positives) and write a report.

    The command writes evaluation.json and report.html into the folder, and with --export images.csv, classes.csv,
    coco_results.json and fiftyone.json. Of a folder of predictions each file is scored, and the parts are merged; an
    image belongs to one of them.
    """
    from coord_eval.cli.summaries import evaluation_lines
    from coord_eval.scoring import score

    with options.Progress() as progress:
        own = None if params == CocoParams() else params
        report = replace(report, params=own, image_root=images, progress=progress)
        folder = predictions.iterdir() if predictions.is_dir() else ()
        if files := sorted(path for path in folder if path.suffix in (".json", ".jsonl")):
            from coord_eval.parts import merge

            of_part = replace(report, bootstrap=0, diagnose=report.diagnose or False)
            parts = [score(ground_truth, path, report=of_part, **settings) for path in files]
            evaluation = merge(parts, bootstrap=report.bootstrap, seed=report.seed)
        else:
            evaluation = score(ground_truth, predictions, report=report, **settings)
    facts = {"predictions": predictions.name, "ground truth": ground_truth.name}
    if page:
        written = evaluation.write_report(out, image_root=images, title=title or predictions.stem, facts=facts)
    else:
        written = out / "evaluation.json"
        write_text(written, evaluation.to_json())
    if export:
        from coord_eval.labelling.export import write_exports

        write_exports(evaluation, out)
    if as_json:
        print(evaluation.to_json())
    else:
        options.print_summary(evaluation_lines(evaluation), evaluation.notes)
        print(f"{'report' if page else 'evaluation'}: {written}")


app.command(epilog=EXAMPLES_OF_PARSE)(parse)
app.command(epilog=EXAMPLES_OF_FUSE)(fuse)
app.command(epilog=EXAMPLES_OF_CALIBRATE)(calibrate)
app.add_typer(review_app, name="review")


@app.command(
    epilog="""\b
examples:
  coord-eval compare --ground-truth instances.json a.jsonl b.jsonl
  coord-eval compare --ground-truth instances.json base=a.jsonl new=b.jsonl --out comparison --resamples 2000
  coord-eval compare --ground-truth instances.json base=a0.jsonl base=a1.jsonl new=b0.jsonl new=b1.jsonl
"""
)
@with_options(options.RANKING, options.BACKENDS, **options.SCORING)
def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="[NAME=]FILE...", help="Predictions .jsonl or COCO results .json.")
    ],
    ground_truth: options.GroundTruthFile,
    resamples: Annotated[int, typer.Option(min=1, metavar="N", help="Number of resamples.")] = 1000,
    seed: options.Seed = 0,
    out: options.OutFolder = None,
    images: options.ImageFolder = None,
    as_json: options.AsJson = False,
    **settings: Any,
) -> None:
    """Compare runs: sets of answers for the same images.

    The difference of each run from the first has a confidence interval from a paired bootstrap over images. Files of
    the same name are the seeds of one run, whose mean and interval over seeds are given too. The files in --out are
    comparison.json and comparison.html.
    """
    from coord_eval.comparison.compare import compare
    from coord_eval.scoring import score

    files: dict[str, list[Path]] = {}
    for argument in runs:
        name, file = options.name_and_file(argument)
        if file in files.setdefault(name, []):
            raise InputError(f"compare: {file} is named twice; give each run a name, and each of its seeds a file")
        files[name].append(file)
    with options.Progress() as progress:
        evaluations = {name: [score(ground_truth, path, **settings) for path in own] for name, own in files.items()}
        comparison = compare(evaluations, resamples, seed, progress)
    if out:
        comparison.write_report(out, image_root=images)
    if as_json:
        print(comparison.to_json())
    else:
        options.print_summary(comparison.lines(), comparison.notes)


@app.command(
    epilog="""\b
examples:
  coord-eval view --ground-truth instances.json --predictions predictions.jsonl --out images
  coord-eval view --ground-truth val.jsonl --predictions p.jsonl --out images --count 200 --images photos
"""
)
@with_options(options.RANKING, options.BACKENDS, **options.SCORING)
def view(
    ground_truth: options.GroundTruthFile,
    predictions: options.PredictionsFile,
    out: options.ReportFolder,
    images: options.ImageFolder = None,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of images.")] = 60,
    **settings: Any,
) -> None:
    """Write a report with many images.

    Half of them have the worst answers, half the best. The command writes evaluation.json and report.html into the
    folder.
    """
    from coord_eval.scoring import score

    with options.Progress() as progress:
        evaluation = score(ground_truth, predictions, report=ReportSettings(progress=progress), **settings)
    facts = {"predictions": predictions.name, "ground truth": ground_truth.name}
    title = f"Images of {predictions.stem}"
    print(evaluation.write_report(out, image_root=images, title=title, max_overlays=count, facts=facts))


@app.command(
    epilog="""\b
examples:
  coord-eval lvis --ground-truth lvis_v1_val.json --predictions results.json
  coord-eval lvis --ground-truth lvis_v1_val.json --predictions predictions.jsonl --scale 999 --json
  coord-eval lvis --ground-truth lvis_v1_val.json --predictions predictions.jsonl --out scores
"""
)
@with_options(
    options.RANKING, answers=options_of(AnswerSettings, *options.OF_TEXT), labels=options_of(LabelSettings, "synonyms")
)
def lvis(
    ground_truth: Annotated[Path, typer.Option(metavar="G", help="LVIS annotations (.json).")],
    predictions: options.PredictionsFile,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
    **settings: Any,
) -> None:
    """Score by the federated rules of LVIS.

    The predictions are text answers or a COCO results list. The metrics are AP, AP by object size and by category
    frequency, and AR of the 300 best boxes of an image. The file in --out is lvis.json.
    """
    from coord_eval.cli.summaries import lvis_lines
    from coord_eval.metrics.lvis import score_lvis

    with options.Progress() as progress:
        scores = score_lvis(ground_truth, predictions, progress=progress, **settings)
    _output(scores, lvis_lines(scores), out and out / "lvis.json", as_json)


@app.command(
    epilog="""\b
examples:
  coord-eval expressions --ground-truth refcoco_val.jsonl --predictions predictions.jsonl
  coord-eval expressions --ground-truth val.jsonl --predictions p.jsonl --scale 1000 --iou 0.5 0.75 --json

\b
one line of the ground truth, its box in [0, 1]:
  {"image": "a.jpg", "width": 640, "height": 480,
   "objects": [{"desc": "the left cup", "bbox": [0.1, 0.2, 0.3, 0.4]}]}
"""
)
@with_options(answers=options_of(AnswerSettings, "format", "scale", "geometry"))
def expressions(
    ground_truth: Annotated[
        Path, typer.Option(metavar="G", help="Instance JSON lines, one phrase with its box on each line.")
    ],
    predictions: Annotated[Path, typer.Option(metavar="P", help="predictions.jsonl in the same order.")],
    *,
    answers: AnswerSettings,
    iou: options.Thresholds = [0.5],  # noqa: B006
    which: Annotated[
        str, typer.Option(metavar="[first|best|score]", help="Box that counts of several; best: by IoU.")
    ] = "first",
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Score answers to referring expressions as RefCOCO does.

    Acc@.5 is the share of phrases whose box (--which) has an IoU of at least .5 with that of the phrase. Each line of
    the predictions is the answer to the same line of the ground truth. The file in --out is expressions.json.
    """
    from coord_eval.cli.summaries import expression_lines
    from coord_eval.metrics.expressions import Which, score_expression_files

    with options.Progress() as progress:
        scores = score_expression_files(
            ground_truth, predictions, iou, answers=answers, progress=progress, which=cast(Which, which)
        )
    _output(scores, expression_lines(scores), out and out / "expressions.json", as_json)


def _output(scores: Any, lines: Iterable[str], file: Path | None, as_json: bool) -> None:
    text = json.dumps(scores.to_dict(), indent=2, allow_nan=False)
    if file:
        write_text(file, text + "\n")
    if as_json:
        print(text)
    else:
        options.print_summary(lines, scores.notes)
