"""The ``coord-eval`` command: exit code 0 done, 1 failed while running, 2 bad usage or bad input."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from coord_eval import cli_compare, cli_expressions, cli_lvis, cli_parse, cli_score, cli_view
from coord_eval.errors import InputError

_EPILOG = """examples:
  coord-eval score --ground-truth instances.json --predictions predictions.jsonl --out report
  coord-eval parse answers.txt
  coord-eval compare --ground-truth instances.json base=a.jsonl new=b.jsonl
  coord-eval view --ground-truth instances.json --predictions predictions.jsonl --out pictures --count 40
  coord-eval lvis --ground-truth lvis_v1_val.json --predictions predictions.jsonl
  coord-eval expressions --ground-truth refcoco_val.jsonl --predictions predictions.jsonl

exit codes: 0 done, 1 failed while running, 2 bad usage or bad input"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="coord-eval",
        description="Read the boxes that a language model wrote and score them the COCO way.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (cli_score, cli_parse, cli_compare, cli_view, cli_lvis, cli_expressions):
        module.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except InputError as error:
        print(f"coord-eval: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing is wrong. What Python still has to flush on its
        # way out goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("coord-eval: interrupted", file=sys.stderr)
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"coord-eval: {place}{error.strerror or error}", file=sys.stderr)
        return 1
