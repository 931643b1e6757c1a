"""Charts of where boxes lie: IoU, coordinates of ground truth and answers, errors of edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from coord_codec.box_transforms import LAYOUTS
from coord_codec.pages import PALETTE, figure
from coord_eval.metrics.breakdowns import EDGES, edge_errors
from coord_eval.report.plot import INK, box_rows, chart

if TYPE_CHECKING:
    from coord_eval.metrics.figures import Figures

_HEIGHT = 250
_COLOURS = {"ground truth": INK, "answers": PALETTE[0]}


def distribution_charts(evaluation: Figures) -> str:
    """Return the charts side by side; empty without objects."""
    if not evaluation.objects_per_image.any():
        return ""
    iou_N = evaluation.matches.iou_N[~evaluation.truth.crowd_N]
    without = f"{(iou_N == 0).sum():,} of {len(iou_N):,} have none"
    svg = _stairs("IoU of each object", {"answers": iou_N}, 20, "IoU", "share of objects")
    drawn = [figure(svg, f"IoU of each object with its box of the same label; {without}")]
    if evaluation.truth.sizes_known and len(evaluation.detections):
        caption = "coordinates of ground truth and answers, as shares of the side of the image"
        drawn.append(figure(_coordinates(evaluation), caption))
    drawn.append(_edges(evaluation))
    return f'<div class="charts">{"".join(part for part in drawn if part)}</div>'


def _coordinates(evaluation: Figures) -> str:
    """Draw the shares of coordinates by place, which show answers that prefer round numbers or the border."""
    truth, detections = evaluation.truth, evaluation.detections
    corners = {
        "ground truth": LAYOUTS["xywh"](truth.boxes_N4) / np.tile(truth.sizes_I2[truth.image_N], 2),
        "answers": LAYOUTS["xywh"](detections.boxes_D4) / np.tile(truth.sizes_I2[detections.image_D], 2),
    }
    return _stairs("Coordinates", corners, 50, "place in the image", "share of coordinates")


def _stairs(alt: str, values: Mapping[str, np.ndarray], bins: int, x: str, y: str) -> str:
    """Draw the shares of values in [0, 1] that lie in each of equal intervals."""
    with chart(alt, height=_HEIGHT) as drawn:
        for name, of_group in values.items():
            counts, edges = np.histogram(of_group[np.isfinite(of_group)], bins, (0, 1))
            drawn.axes.stairs(
                counts / max(counts.sum(), 1),
                edges,
                linewidth=1.8,
                label=name if len(values) > 1 else "",
                fill=len(values) == 1,
                color=_COLOURS[name],
            )
        drawn.axes.set(xlabel=x, ylabel=y, xlim=(0, 1))
    return drawn.svg


def _edges(evaluation: Figures) -> str:
    error_d4, _ = edge_errors(evaluation)
    if not len(error_d4):
        return ""
    reach = 1.1 * max(float(np.abs(np.percentile(error_d4, [5, 95], axis=0)).max()), 1e-6)
    caption = "answer minus ground truth of each edge in pixels: 5 to 95 %, middle half, median"
    with chart(caption, height=_HEIGHT) as drawn:
        box_rows(drawn.axes, {edge: error_d4[:, k].tolist() for k, edge in enumerate(EDGES)})
        drawn.axes.axvline(0, color=INK, linestyle="--", linewidth=1)
        drawn.axes.set(xlabel="pixels", xlim=(-reach, reach))
    return figure(drawn.svg, caption)
