"""Charts of where boxes lie: IoU, coordinates of ground truth and answers, errors of edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from coord_codec.html import PALETTE, figure
from coord_eval.match.matching import Scored
from coord_eval.metrics.breakdowns import EDGES, edge_errors
from coord_eval.report.plot import INK, Style, box_rows, chart, styled

if TYPE_CHECKING:
    from coord_eval.evaluation import Evaluation

_HEIGHT = 250
_COLOUR = {"answers": PALETTE[0]}


def distribution_charts(evaluation: Evaluation) -> str:
    """Return the charts side by side; empty without objects."""
    if not evaluation.objects_per_image.any():
        return ""
    answers = {"answers": [evaluation]}
    iou_N = evaluation.matches.iou_N[~evaluation.truth.crowd_N]
    without = f"{(iou_N == 0).sum():,} of {len(iou_N):,} have none"
    drawn = [figure(iou_chart(answers, _COLOUR), f"IoU of each object with its box of the same label; {without}")]
    if evaluation.truth.sizes_known and len(evaluation.detections):
        caption = "coordinates of ground truth and answers, as shares of the side of the image"
        drawn.append(figure(coordinate_chart(answers, _COLOUR), caption))
    drawn.append(_edges(evaluation))
    return f'<div class="charts">{"".join(part for part in drawn if part)}</div>'


def iou_chart(groups: Mapping[str, Sequence[Scored]], colours: Mapping[str, str | Style]) -> str:
    """Draw the shares of objects by their IoU with their box of the same label, 0 for missed ones.

    Args:
        groups: the scored sets of each group, which are taken together
        colours: the colour of each group, or its style from `series_styles`
    """
    edges = np.linspace(0, 1, 21)
    shares = {
        name: _shares([scored.matches.iou_N[~scored.truth.crowd_N] for scored in sets], edges)
        for name, sets in groups.items()
    }
    return _stairs("IoU of each object", edges, shares, colours, "IoU", "share of objects")


def coordinate_chart(groups: Mapping[str, Sequence[Scored]], colours: Mapping[str, str | Style]) -> str:
    """Draw the shares of coordinates by place, which show answers that prefer round numbers or the border.

    Args:
        groups: the scored sets of each group, which are taken together and have the same ground truth
        colours: the colour of each group, or its style from `series_styles`; the ground truth is grey
    """
    edges = np.linspace(0, 1, 51)
    truth = next(iter(groups.values()))[0].truth
    answered = {
        name: [_corners(s.detections.boxes_D4, s.truth.sizes_I2[s.detections.image_D]) for s in sets]
        for name, sets in groups.items()
    }
    corners = {"ground truth": [_corners(truth.boxes_N4, truth.sizes_I2[truth.image_N])], **answered}
    shares = {name: _shares(values, edges) for name, values in corners.items()}
    grey: dict[str, str | Style] = {"ground truth": INK, **colours}
    return _stairs("Coordinates", edges, shares, grey, "place in the image", "share of coordinates")


def _corners(boxes_N4: np.ndarray, sizes_N2: np.ndarray) -> np.ndarray:
    """Return boxes (xywh in pixels) as corners in [0, 1]."""
    corners = np.concatenate([boxes_N4[:, :2], boxes_N4[:, :2] + boxes_N4[:, 2:]], axis=1)
    shares: np.ndarray = corners / np.tile(sizes_N2, 2)
    return shares


def _shares(values: Sequence[np.ndarray], edges: np.ndarray) -> np.ndarray:
    together = np.concatenate(values, axis=None)
    counts = np.histogram(together[np.isfinite(together)], edges)[0]
    shares: np.ndarray = counts / max(counts.sum(), 1)
    return shares


def _stairs(
    alt: str, edges: np.ndarray, shares: Mapping[str, np.ndarray], colours: Mapping[str, str | Style], x: str, y: str
) -> str:
    with chart(alt, height=_HEIGHT) as drawn:
        for name, heights in shares.items():
            label = name if len(shares) > 1 else None
            style = styled(colours[name])
            drawn.axes.stairs(heights, edges, linewidth=1.8, label=label, fill=len(shares) == 1, **style)
        drawn.axes.set(xlabel=x, ylabel=y, xlim=(edges[0], edges[-1]))
    return drawn.svg


def _edges(evaluation: Evaluation) -> str:
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
