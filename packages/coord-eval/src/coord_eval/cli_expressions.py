"""``coord-eval expressions``: the accuracy of RefCOCO."""

from __future__ import annotations

import argparse
from pathlib import Path

from coord_eval.cli_options import Progress, add_format, tell
from coord_eval.expressions import ExpressionScores, score_expression_files

_EPILOG = """examples:
  coord-eval expressions --ground-truth refcoco_val.jsonl --predictions predictions.jsonl
  coord-eval expressions --ground-truth val.jsonl --predictions p.jsonl --scale 1000 --iou 0.5 0.75 --json

each line of the ground truth is one phrase with its box, boxes in [0, 1]:
  {"image": "a.jpg", "width": 640, "height": 480, "objects": [{"desc": "the left cup", "bbox": [0.1, 0.2, 0.3, 0.4]}]}
and the same line of the predictions is the answer to it; with --out writes OUT/expressions.json"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "expressions",
        help="score answers to referring expressions, Acc@.5",
        description="Score answers to referring expressions as RefCOCO does: the share of phrases whose first box "
        "has an IoU of at least .5 with the true one.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--ground-truth", required=True, type=Path, metavar="G", help="instance .jsonl, a phrase a line"
    )
    parser.add_argument(
        "--predictions", required=True, type=Path, metavar="P", help="predictions.jsonl, in the same order"
    )
    add_format(parser, ("pixels", "input_pixels", "infer"))
    parser.add_argument(
        "--iou",
        nargs="+",
        type=_threshold,
        default=[0.5],
        metavar="T",
        help="IoU from which a box is right (default: 0.5)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of expressions.json")
    parser.add_argument("--json", action="store_true", help="print expressions.json instead of a summary")
    parser.set_defaults(run=_run)


def _threshold(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and up to 1, found {text!r}")
    return value


def _run(options: argparse.Namespace) -> int:
    progress = Progress()
    try:
        scores = score_expression_files(
            options.ground_truth,
            options.predictions,
            options.iou,
            format=options.format,
            scale=options.scale,
            progress=progress,
        )
    finally:
        progress.close()
    return tell(options, "expressions.json", scores.to_dict(), _summary(scores))


def _summary(scores: ExpressionScores) -> str:
    lines = [
        f"Acc@{threshold:5} {value:.4f}{_interval(scores, f'Acc@{threshold}')}"
        for threshold, value in scores.accuracy.items()
    ]
    lines.append(f"mean IoU  {scores.mean_iou:.4f}{_interval(scores, 'mean_iou')}")
    lines.append(
        f"{scores.phrases} phrases, {scores.without_box} answers without a box, {scores.several_boxes} with several"
    )
    return "\n".join([*lines, *(f"note: {note}" for note in scores.notes)])


def _interval(scores: ExpressionScores, name: str) -> str:
    found = scores.intervals.get(name)
    return f"   95 % over pictures [{found['low']:.4f}, {found['high']:.4f}]" if found else ""
