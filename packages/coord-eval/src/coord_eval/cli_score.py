"""``coord-eval score``: numbers and report of one set of answers."""

from __future__ import annotations

import argparse
from pathlib import Path

from coord_eval.bootstrap import HEADLINE
from coord_eval.cli_options import Progress, add_inputs, positive, score_options
from coord_eval.evaluation import Evaluation
from coord_eval.exporting import write_exports
from coord_eval.report_tables import number
from coord_eval.scoring import score

_EPILOG = """examples:
  coord-eval score --ground-truth instances.json --predictions predictions.jsonl --out report
  coord-eval score --ground-truth val.jsonl --predictions p.jsonl --out r --max-objects 30 --images photos
  coord-eval score --ground-truth instances.json --predictions detector_results.json --out report --json

writes OUT/evaluation.json and OUT/report.html; with --export also images.csv, classes.csv,
coco_results.json and fiftyone.json"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "score",
        help="score answers against ground truth",
        description="Score answers against ground truth and write a report.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_inputs(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the report")
    parser.add_argument("--images", type=Path, metavar="DIR", help="folder of the pictures")
    parser.add_argument("--title", help="heading of the report")
    parser.add_argument(
        "--bootstrap",
        type=positive,
        default=0,
        metavar="N",
        help="intervals from N resamples of the pictures",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the resamples (default: 0)")
    parser.add_argument(
        "--export", action="store_true", help="also write CSV, COCO results and FiftyOne labels"
    )
    parser.add_argument("--json", action="store_true", help="print evaluation.json instead of a summary")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    progress = Progress()
    try:
        evaluation = score(
            options.ground_truth,
            options.predictions,
            bootstrap=options.bootstrap,
            seed=options.seed,
            progress=progress,
            **score_options(options),
        )
    finally:
        progress.close()
    report = evaluation.write_report(options.out, image_root=options.images, title=options.title)
    if options.export:
        write_exports(evaluation, options.out)
    print(evaluation.to_json() if options.json else summary(evaluation, report))
    return 0


def summary(evaluation: Evaluation, report: Path) -> str:
    """Return the lines a person reads after a run."""
    coco, ceiling, health = evaluation.coco, evaluation.ceiling, evaluation.format
    lines = [
        f"{'':6} {'score':>7} {'constant':>9} {'any label':>10} {'ceiling':>8}   "
        f"ranked by {evaluation.score_source}",
        *(
            f"{key:6} {number(coco[key]):>7} {number(evaluation.coco_constant_score[key]):>9} "
            f"{number(evaluation.coco_class_agnostic[key]):>10} {number(ceiling.get(key, -1)):>8}"
            for key in ("AP", "AP50", "AP75", "AR100")
        ),
        *(
            f"IoU {key:9} precision {row['precision']:.3f}  recall {row['recall']:.3f}  F1 {row['f1']:.3f}"
            for key, row in evaluation.detection.items()
        ),
        f"mean IoU {evaluation.mean_iou:.3f} ({evaluation.mean_iou_class_agnostic:.3f} for any label)",
    ]
    if health["answers"]:
        dropped = ", ".join(f"{n} {reason}" for reason, n in health["dropped"].items()) or "none"
        lines.append(
            f"{health['parsed']} of {health['answers']} answers parse, {health['truncated']} truncated, "
            f"{health['objects']} objects; dropped: {dropped}"
        )
    if unknown := evaluation.counts["unknown_label_detections"]:
        lines.append(f"{unknown} boxes with labels that the ground truth doesn't have, counted as false")
    if evaluation.join.unknown:
        lines.append(f"{evaluation.join.unknown} predictions about unknown images, left out")
    for name, row in ((name, row) for name, row in evaluation.intervals.items() if name in HEADLINE):
        lines.append(f"{name:9} {row['value']:.4f}  95 % interval {row['low']:.4f} to {row['high']:.4f}")
    return "\n".join([*lines, *(f"note: {note}" for note in evaluation.notes), f"report: {report}"])
