"""``coord-eval view``: many pictures with truth and answer."""

from __future__ import annotations

import argparse
from pathlib import Path

from coord_eval.cli_options import Progress, add_inputs, positive, score_options
from coord_eval.scoring import score

_EPILOG = """examples:
  coord-eval view --ground-truth instances.json --predictions predictions.jsonl --out pictures
  coord-eval view --ground-truth val.jsonl --predictions p.jsonl --out pictures --count 200 --images photos

writes OUT/evaluation.json and OUT/report.html with COUNT pictures"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "view",
        help="write a report with many pictures",
        description="Write the report with many pictures, worst and best answers first and last.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_inputs(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the report")
    parser.add_argument("--images", type=Path, metavar="DIR", help="folder of the pictures")
    parser.add_argument("--count", type=positive, default=60, metavar="N", help="pictures (default: 60)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    progress = Progress()
    try:
        evaluation = score(
            options.ground_truth, options.predictions, progress=progress, **score_options(options)
        )
    finally:
        progress.close()
    print(evaluation.write_report(options.out, image_root=options.images, max_overlays=options.count))
    return 0
