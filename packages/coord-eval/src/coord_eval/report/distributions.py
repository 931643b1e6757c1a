"""Charts of where boxes lie: IoU, coordinates of ground truth and answers, errors of edges, and recall by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coord_codec.html import PALETTE, figure
from coord_eval.metrics.breakdowns import EDGES
from coord_eval.report.plot import INK, box_rows, chart

if TYPE_CHECKING:
    from coord_eval.evaluation import Evaluation

_HEIGHT = 250


def distribution_charts(evaluation: Evaluation) -> str:
    """Return the charts side by side; empty without objects."""
    if not evaluation.objects_per_image.any():
        return ""
    drawn = [_ious(evaluation), _coordinates(evaluation), _edges(evaluation)]
    analysis = evaluation.analysis
    bars = {
        "recall by size of the object": ("recall", analysis["by_size"]),
        "F1 by number of objects in the image": ("f1", analysis["by_object_count"]),
        "precision by position in the answer": ("precision", analysis["by_rank"]),
    }
    for title, (key, rows) in bars.items():
        if len(rows) > 1:
            drawn.append(_bars(title, list(rows), [row[key] for row in rows.values()]))
    return f'<div class="charts">{"".join(part for part in drawn if part)}</div>'


def _ious(evaluation: Evaluation) -> str:
    iou_N = evaluation.matches.iou_N[~evaluation.truth.crowd_N]
    caption = f"IoU of each object with its box of the same label; {(iou_N == 0).sum():,} of {len(iou_N):,} have none"
    with chart(caption, height=_HEIGHT) as drawn:
        drawn.axes.hist(iou_N, np.linspace(0, 1, 21).tolist(), color=PALETTE[0])
        drawn.axes.set(xlim=(0, 1), xlabel="IoU", ylabel="objects")
    return figure(drawn.svg, caption)


def _coordinates(evaluation: Evaluation) -> str:
    """Return the shares of coordinates by place, which show answers that prefer round numbers or the border."""
    truth, detections = evaluation.truth, evaluation.detections
    if not truth.sizes_known or not len(detections):
        return ""
    caption = "coordinates of ground truth and answers, as shares of the side of the image"
    with chart(caption, height=_HEIGHT) as drawn:
        sets = (("ground truth", truth.boxes_N4, truth.image_N), ("answers", detections.boxes_D4, detections.image_D))
        for name, boxes, images in sets:
            corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
            places = (corners / np.tile(truth.sizes_I2[images], 2)).ravel()
            counts, edges = np.histogram(places[np.isfinite(places)], np.linspace(0, 1, 51))
            drawn.axes.stairs(counts / max(counts.sum(), 1), edges, label=name, linewidth=1.8)
        drawn.axes.set(xlim=(0, 1), xlabel="place in the image", ylabel="share of coordinates")
    return figure(drawn.svg, caption)


def _edges(evaluation: Evaluation) -> str:
    truth, detections, matches = evaluation.truth, evaluation.detections, evaluation.matches
    rows_d = np.nonzero(matches.iou_D >= 0.5)[0]
    if not len(rows_d):
        return ""
    a, b = detections.boxes_D4[rows_d], truth.boxes_N4[matches.object_D[rows_d]]
    error = np.concatenate([a[:, :2] - b[:, :2], (a[:, :2] + a[:, 2:]) - (b[:, :2] + b[:, 2:])], axis=1)
    reach = 1.1 * max(float(np.abs(np.percentile(error, [5, 95], axis=0)).max()), 1e-6)
    caption = "answer minus ground truth of each edge in pixels: 5 to 95 %, middle half, median"
    with chart(caption, height=_HEIGHT) as drawn:
        box_rows(drawn.axes, {edge: error[:, k].tolist() for k, edge in enumerate(EDGES)})
        drawn.axes.axvline(0, color=INK, linestyle="--", linewidth=1)
        drawn.axes.set(xlabel="pixels", xlim=(-reach, reach))
    return figure(drawn.svg, caption)


def _bars(title: str, names: Sequence[str], values: Sequence[float]) -> str:
    with chart(title, height=_HEIGHT) as drawn:
        drawn.axes.bar(range(len(names)), np.nan_to_num(values), 0.7, color=PALETTE[2])
        drawn.axes.set_xticks(range(len(names)), names)
        drawn.axes.set(ylim=(0, 1))
    return figure(drawn.svg, title)
