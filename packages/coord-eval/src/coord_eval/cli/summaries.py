"""Summaries that the commands print: one function for each kind of result, which yields lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coord_codec.counts import counted, counted_note
from coord_eval.evaluation import Evaluation
from coord_eval.html import number
from coord_eval.metrics.figures import join_lines
from coord_eval.metrics.metric_table import figure_of
from coord_eval.report.shown import all_shown

if TYPE_CHECKING:
    from coord_eval.metrics.expressions import ExpressionScores
    from coord_eval.metrics.lvis import LvisScores


def evaluation_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the lines of the metrics, counts of parsed and dropped answers, and headline intervals."""
    health = evaluation.format
    yield from _shape_lines(evaluation)
    for shown in all_shown():
        if shown.lines and evaluation.has_boxes:
            yield from shown.lines(evaluation)
    if health["answers"]:
        dropped = ", ".join(f"{n} {reason}" for reason, n in health["dropped"].items()) or "none"
        yield (
            f"{health['parsed']} of {counted(health['answers'], 'answer')} parsed, {health['truncated']} truncated, "
            f"{counted(health['objects'], 'object')}; dropped: {dropped}"
        )
        if repairs := ", ".join(f"{n} {repair}" for repair, n in health["repairs"].items()):
            yield f"repaired: {repairs}"
    yield from join_lines(evaluation)
    for name, row in evaluation.intervals.items():
        if figure_of(name).headline:
            yield f"{name:9} {row['value']:.4f}  95 % interval {row['low']:.4f} to {row['high']:.4f}"


def _shape_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the scores of shapes, and whether those of boxes follow; nothing for boxes."""
    shapes = evaluation.shapes
    if not shapes:
        return
    yield f"{shapes['geometry']}: {shapes['measure']}, {shapes['without_shape']} answered without a shape"
    ceiling = shapes.get("ceiling", {})
    yield f"{'':6} {'score':>7}{' ceiling' * bool(ceiling):>9}".rstrip()
    for key in ceiling or [name for name in shapes if name[:2] in ("AP", "AR", "me") and name != "measure"]:
        if key != "simplified":
            value = number(ceiling[key]) if ceiling else ""
            yield f"{key:6} {number(shapes[key]):>7} {value:>8}".rstrip()
    has_boxes = evaluation.has_boxes
    yield "of the boxes around the shapes:" if has_boxes else "boxes have no meaning here: evaluation.json has them"


def lvis_lines(scores: LvisScores) -> Iterator[str]:
    """Yield the LVIS metrics and the numbers of boxes left out."""
    for key, value in scores.summary.items():
        yield f"{key:7} {number(value):>6}"
    yield f"ranked by {scores.score_source}, {counted(scores.detections, 'box', 'boxes')}"
    for count, description in (
        (scores.beyond_limit, "boxes beyond the 300 best of their image, left out"),
        (scores.unverified, "boxes with a label that was not verified in their image, left out"),
        (scores.unknown, "boxes with a label unknown to LVIS, left out"),
        (scores.join.unknown, "predictions about unknown images, left out"),
        (sum(scores.format["dropped"].values()), "objects dropped by the parser"),
    ):
        if count:
            yield counted_note(count, description)


_COUNTS = {"first": "the first", "best": "the one with the highest IoU", "score": "the one with the highest score"}


def expression_lines(scores: ExpressionScores) -> Iterator[str]:
    """Yield accuracy and mean IoU over phrases, with intervals."""
    figures: list[tuple[str, float | None, str]] = [
        *((f"Acc@{threshold:5}", value, f"Acc@{threshold}") for threshold, value in scores.accuracy.items()),
        ("mean IoU ", scores.mean_iou, "mean_iou"),
        ("point in box", scores.point_in_box, "point_in_box"),
        ("Pr@(F1=1)", scores.precision_f1, "precision_f1"),
        ("N-acc    ", scores.n_acc, "n_acc"),
    ]
    for title, value, name in figures:
        bounds = scores.intervals.get(name)
        interval = f"   95 % over images [{bounds['low']:.4f}, {bounds['high']:.4f}]" if bounds else ""
        if value is not None:
            yield f"{title} {value:.4f}{interval}"
    if scores.no_target + scores.several_targets:
        yield (
            f"{counted(scores.no_target, 'phrase')} without a target, {scores.several_targets} with several; "
            "Acc, mean IoU and point in box are over the others"
        )
    answers = counted(scores.without_box, "answer")
    several = f"{scores.several_boxes} with several: {_COUNTS[scores.which]} counts"
    yield f"{counted(scores.phrases, 'phrase')}, {answers} without a box, {several}"
