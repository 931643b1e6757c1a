"""How the console shows each metric: functions of an evaluation that yield lines, or a part of the one brief line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from coord_codec.pages import number
from coord_eval.metrics.coco import beyond_limit
from coord_eval.metrics.thresholds import best_threshold
from coord_eval.report.metric_html import flat

if TYPE_CHECKING:
    from coord_eval.metrics.figures import Figures


def coco_lines(evaluation: Figures) -> Iterator[str]:
    """Yield AP, AP50, AP75 and AR100 with the scores, with all scores 1, for any label, and of the ceiling."""
    yield (
        f"{'':6} {'score':>7} {'constant':>9} {'any label':>10} {'ceiling':>8}   ranked by {evaluation.score_source}"
    )
    constant, any_label = evaluation.coco_constant_score, evaluation.coco_class_agnostic
    for key in ("AP", "AP50", "AP75", "AR100"):
        ceiling = number(evaluation.ceiling.get(key, -1))
        scores = f"{number(evaluation.coco[key]):>7} {number(constant[key]):>9} {number(any_label[key]):>10}"
        yield f"{key:6} {scores} {ceiling:>8}"


def coco_brief(evaluation: Figures) -> str:
    """Return AP beside its ceiling, and AP50."""
    coco, ceiling = evaluation.coco, evaluation.ceiling
    truth = evaluation.truth
    of_limit = beyond_limit(truth.image_N[~truth.crowd_N], truth.category_N[~truth.crowd_N])
    kind = "ceiling of COCO's 100 boxes" if of_limit else "quantisation ceiling"
    beside = f" ({kind} {ceiling['AP']:.3f})" if ceiling else ""
    return f"AP {coco['AP']:.3f}{beside}   AP50 {coco['AP50']:.3f}"


def detection_lines(evaluation: Figures) -> Iterator[str]:
    """Yield precision, recall and F1 of all boxes at each IoU, and of those above the best threshold of the score."""
    rows = list(evaluation.detection.items())
    if best := best_threshold(evaluation):
        rows.append(("0.5", best))
    for key, row in rows:
        remark = f"  from a score of {row['threshold']:.3g} on, the best" if "threshold" in row else ""
        yield f"IoU {key:9} precision {row['precision']:.3f}  recall {row['recall']:.3f}  F1 {row['f1']:.3f}{remark}"


def own_lines(evaluation: Figures) -> Iterator[str]:
    """Yield AP and AR with the caller's parameters."""
    for name, value in evaluation.coco_own.items():
        yield f"{name:9} {number(value)}  with your parameters"


def further(name: str) -> Callable[[Figures], Iterator[str]]:
    """Return the function that yields a registered metric: a line for each number that it holds."""

    def lines(evaluation: Figures) -> Iterator[str]:
        for key, text in flat(evaluation.metrics[name]):
            yield f"{name}{'.' if key else ''}{key} {text}"

    return lines
