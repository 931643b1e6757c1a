"""``coord-eval compare``: two or more sets of answers about the same pictures."""

from __future__ import annotations

import argparse
from pathlib import Path

from coord_eval.bootstrap import HEADLINE
from coord_eval.cli_options import Progress, add_backend, add_ceiling, add_reading, positive, score_options
from coord_eval.comparison import Comparison, compare
from coord_eval.errors import InputError
from coord_eval.scoring import score

_EPILOG = """examples:
  coord-eval compare --ground-truth instances.json a.jsonl b.jsonl
  coord-eval compare --ground-truth instances.json base=a.jsonl new=b.jsonl --out comparison --resamples 2000

the first run is what the others are measured against; with --out writes OUT/comparison.json and .html"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare",
        help="compare sets of answers in pairs",
        description="Compare two or more sets of answers about the same pictures by a paired bootstrap over images.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", nargs="+", metavar="[NAME=]FILE", help="predictions .jsonl or COCO results .json"
    )
    parser.add_argument(
        "--ground-truth", required=True, type=Path, metavar="G", help="COCO .json or instance .jsonl"
    )
    add_reading(parser)
    add_backend(parser)
    add_ceiling(parser)
    parser.add_argument("--resamples", type=positive, default=1000, metavar="N", help="default: 1000")
    parser.add_argument("--seed", type=int, default=0, help="of the resamples (default: 0)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the comparison")
    parser.add_argument("--json", action="store_true", help="print comparison.json instead of a summary")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    files: dict[str, Path] = {}
    for word in options.runs:
        name, _, path = (word, "", word) if Path(word).exists() else word.rpartition("=")
        name = name or word
        if name in files:
            raise InputError(f"compare: two runs are called {name!r}; name them: NAME=FILE")
        files[name] = Path(path)
    progress = Progress()
    try:
        settings = score_options(options)
        runs = {name: score(options.ground_truth, path, **settings) for name, path in files.items()}
        comparison = compare(runs, options.resamples, options.seed, progress)
    finally:
        progress.close()
    if options.out:
        comparison.write_report(options.out)
    print(comparison.to_json() if options.json else _summary(comparison))
    return 0


def _summary(comparison: Comparison) -> str:
    first = next(iter(comparison.metrics))
    lines = []
    for run, differences in comparison.differences.items():
        lines.append(f"{run} against {first}")
        for name in [name for name in HEADLINE if name in differences]:
            d = differences[name]
            before, after = (comparison.metrics[r][name]["value"] for r in (first, run))
            lines.append(
                f"  {name:9} {before:7.4f} -> {after:7.4f}  {d.value:+.4f} [{d.low:+.4f}, {d.high:+.4f}]  "
                f"better in {100 * d.share_better:.1f} %"
            )
    lines.append("more metrics: --json, --out")
    lines.append(
        f"{comparison.resamples} resamples of the pictures, seed {comparison.seed}, paired 95 % intervals"
    )
    return "\n".join([*lines, *(f"note: {note}" for note in comparison.notes)])
