"""The commands `review` and `review apply`: which labels are wrong, and annotations with the decisions about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coord_codec.commands.options import options_of, with_options
from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_eval.cli import options
from coord_eval.settings import AnswerSettings, LabelSettings

if TYPE_CHECKING:
    from coord_eval.review import Review

EXAMPLES_OF_REVIEW = """\b
examples:
  coord-eval review --ground-truth instances.json --predictions predictions.jsonl --images photos --out review
  coord-eval review --ground-truth train.jsonl --predictions p.jsonl --likelihoods likelihoods.jsonl --out review
  coord-eval review apply decisions.json --ground-truth instances.json --out corrected.json
"""
app = typer.Typer(no_args_is_help=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True, epilog=EXAMPLES_OF_REVIEW)
@with_options(
    options.RANKING, answers=options_of(AnswerSettings, *options.OF_TEXT), labels=options_of(LabelSettings, "synonyms")
)
def review(
    ctx: typer.Context,
    ground_truth: Annotated[
        Path | None, typer.Option(metavar="G", help="COCO annotations (.json) or instance JSON lines.")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(metavar="P", help="predictions.jsonl or a COCO results list (.json).")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the review.")] = None,
    images: options.ImageFolder = None,
    likelihoods: Annotated[
        Path | None, typer.Option(metavar="FILE", help="likelihoods.jsonl: how likely a model finds the labels.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Map scores to probabilities, as `coord-eval calibrate` fits them."),
    ] = None,
    least: Annotated[
        float, typer.Option(min=0, max=1, metavar="P", help="Probability from which on a suspicion is listed.")
    ] = 0.05,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Most suspicions on the page.")] = 300,
    export: Annotated[
        str | None, typer.Option(metavar="T,...", help="Files for labelling tools: labelstudio, cvat, coco, fiftyone.")
    ] = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Review of labels",
    **settings: Any,
) -> None:
    """Judge every label by the answers of a model: which are probably wrong (label errors), and what they should be.

    The command writes review.html, where you decide by keyboard, review.jsonl with a line for each suspicion, and
    review.json with what it rests on and the probability of every label. The model must not have been trained on the
    labels that it judges. `review apply` applies the decisions.
    """
    if ctx.invoked_subcommand is not None:
        return
    for name, value in (("--ground-truth", ground_truth), ("--predictions", predictions), ("--out", out)):
        if value is None:
            raise InputError(f"review: {name} is missing; see `coord-eval review --help`")
    assert ground_truth is not None and predictions is not None and out is not None
    from coord_eval.review import TOOLS, write_review_exports
    from coord_eval.review import review as judge

    tools = [name.strip() for name in export.split(",")] if export is not None else []
    if unknown := next((name for name in tools if name not in TOOLS), None):
        raise InputError(f"--export: expected some of {', '.join(TOOLS)}, found {unknown!r}")
    found = judge(ground_truth, predictions, likelihoods=likelihoods, calibration=calibration, least=least, **settings)
    facts = {"predictions": predictions.name, "ground truth": ground_truth.name}
    page = found.write(out, image_root=images, title=title, most=count, facts=facts)
    options.print_summary(_lines(found), found.notes)
    for path in write_review_exports(found, out, tools) if tools else ():
        print(f"export: {path}")
    print(f"review: {page}")


def _lines(review: Review) -> Iterator[str]:
    kinds = Counter(finding.kind for finding in review.findings)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    sure = sum(finding.probability >= 0.5 for finding in review.findings)
    expected = sum(item.probability for item in review.judged)
    yield f"{counted(len(review.judged), 'label')} judged, {expected:.1f} of them expected to be wrong"
    yield f"{counted(len(review.findings), 'suspicion')}, {sure} of at least 50 %" + (f": {listed}" if listed else "")


@app.command()
def apply(
    decisions: Annotated[Path, typer.Argument(metavar="DECISIONS", help="decisions.json that the page saved.")],
    ground_truth: options.GroundTruthFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the corrected annotations.", show_default=False)],
) -> None:
    """Write annotations with the decisions applied, and beside them FILE.changes.json: each change with its reason.

    The format stays that of the ground truth. Nothing is written over an existing file.
    """
    from coord_eval.review import apply_decisions

    correction = apply_decisions(decisions, ground_truth, out)
    taken = ", ".join(f"{count} {name}" for name, count in correction.counts.items() if name != "changed")
    print(f"{counted(correction.counts['changed'], 'label')} changed; decisions: {taken or 'none'}")
    print(f"corrected: {correction.file}\nchanges: {correction.list}")
