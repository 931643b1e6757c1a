"""``coord-eval lvis``: the numbers of LVIS."""

from __future__ import annotations

import argparse
from pathlib import Path

from coord_eval.cli_options import Progress, add_reading, reading_options, tell
from coord_eval.lvis import LvisScores, score_lvis
from coord_eval.report_tables import number

_EPILOG = """examples:
  coord-eval lvis --ground-truth lvis_v1_val.json --predictions results.json
  coord-eval lvis --ground-truth lvis_v1_val.json --predictions predictions.jsonl --scale 999 --json
  coord-eval lvis --ground-truth lvis_v1_val.json --predictions predictions.jsonl --out scores

with --out writes OUT/lvis.json"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "lvis",
        help="score by the rules of LVIS",
        description="Score answers or a COCO results list by the federated rules of LVIS: AP, by size and by "
        "frequency of the label, and AR of the 300 best boxes of a picture.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ground-truth", required=True, type=Path, metavar="G", help="LVIS .json")
    parser.add_argument(
        "--predictions", required=True, type=Path, metavar="P", help="predictions.jsonl or COCO results .json"
    )
    add_reading(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of lvis.json")
    parser.add_argument("--json", action="store_true", help="print lvis.json instead of a summary")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    progress = Progress()
    try:
        scores = score_lvis(
            options.ground_truth, options.predictions, progress=progress, **reading_options(options)
        )
    finally:
        progress.close()
    return tell(options, "lvis.json", scores.to_dict(), _summary(scores))


def _summary(scores: LvisScores) -> str:
    lines = [f"{key:7} {number(value):>6}" for key, value in scores.summary.items()]
    lines.append(f"ranked by {scores.score_source}, {scores.detections} boxes")
    for count, what in (
        (scores.beyond_limit, "boxes beyond the 300 best of their picture, left out"),
        (scores.unverified, "boxes with a label nobody looked for in their picture, left out"),
        (scores.unknown, "boxes with a label that LVIS doesn't have, left out"),
        (scores.join.unknown, "predictions about unknown images, left out"),
        (sum(scores.format["dropped"].values()), "objects dropped by the parser"),
    ):
        if count:
            lines.append(f"{count} {what}")
    return "\n".join([*lines, *(f"note: {note}" for note in scores.notes)])
