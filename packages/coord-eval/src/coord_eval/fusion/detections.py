"""Fuses the detections of a set of images: near-duplicates within one set of answers, or an ensemble of several sets.

Shapes: D detections of all runs, I images, R runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from coord_codec import Geometry, InputError, geometry_of
from coord_codec.counts import counted
from coord_codec.layouts import LAYOUTS
from coord_eval.boxes.detections import Box, Detections
from coord_eval.fusion.columns import DEFAULT_IOU, METHODS, VIEW, Method, checked_weights, fuse_boxes, views_of

_COLUMNS = ("image_D", "category_D", "boxes_D4", "scores_D", "rank_D")


@dataclass(frozen=True)
class FusionRule:
    """How boxes are fused, as `--fuse` states it.

    Attributes:
        method: `wbf` or `nms`
        iou: IoU above which two boxes are one object

    Example:
        >>> FusionRule.parse("nms:0.6"), str(FusionRule.parse("wbf"))
        (FusionRule(method='nms', iou=0.6), 'wbf:0.55')
    """

    method: Method = "wbf"
    iou: float = DEFAULT_IOU

    @classmethod
    def parse(cls, text: str) -> FusionRule:
        """Return the rule that a text `METHOD[:IOU]` states.

        Raises:
            InputError: for another text
        """
        method, colon, number = text.partition(":")
        try:
            iou = float(number) if colon else DEFAULT_IOU
        except ValueError:
            iou = -1.0
        if method not in METHODS or not 0 <= iou <= 1:
            raise InputError(
                f"fuse: expected {', '.join(METHODS)}, with an IoU from 0 to 1 after a colon, such as nms:0.5, found "
                f"{text!r:.80}"
            )
        return cls(cast(Method, method), iou)

    def __str__(self) -> str:
        return f"{self.method}:{self.iou:g}"


def fuse_detections(
    runs: Sequence[Detections],
    rule: FusionRule,
    geometry: str | Geometry,
    sizes_I2: np.ndarray,
    weights: Sequence[float] | None = None,
) -> tuple[Detections, dict[str, Any]]:
    """Fuse the detections of several runs for the same images and categories.

    Args:
        runs: the detections of each run; of a single one, near-duplicates are fused
        rule: method and threshold
        geometry: geometry of the objects
        sizes_I2: width and height of the images in pixels
        weights: a weight for each run, None for equal ones

    Returns:
        The fused detections, those of an image in the order of the answers, and the counts of `Fusion` over all images.

    Raises:
        InputError: for shapes other than boxes
    """
    if not (kind := geometry_of(geometry)).is_box:
        raise InputError(f"fuse: geometry {kind.name}: expected boxes, since only these are fused")
    weight_R = checked_weights(weights, len(runs))
    numbers = [(run.part_D if run.part_D is not None else np.zeros(len(run), np.int64)) for run in runs]
    together = {name: np.concatenate([getattr(run, name) for run in runs]) for name in _COLUMNS}
    run_D, part_D = np.repeat(np.arange(len(runs)), [len(run) for run in runs]), np.concatenate(numbers)
    order = np.lexsort((together["rank_D"], part_D, run_D, together["image_D"]))
    run_D, part_D = run_D[order], part_D[order]
    together = {name: column[order] for name, column in together.items()}

    # Each part of an image that a run was asked about is a view.
    views: list[tuple[Any, ...]] = []
    first: dict[tuple[int, int], int] = {}
    for image in np.unique(together["image_D"]).tolist():
        parts: list[tuple[float, tuple[float, ...] | None]] = []
        for r, run in enumerate(runs):
            first[image, r] = len(views) + len(parts)
            parts += [(weight_R[r], _region(tile)) for tile in run.asked.get(image, (None,))]
        regions = [region for _, region in parts]
        frame = (float(sizes_I2[image][0]), float(sizes_I2[image][1]))
        views += views_of(image, regions if any(regions) else None, [weight for weight, _ in parts], frame)
    places = zip(together["image_D"].tolist(), run_D.tolist(), strict=True)
    view_D = np.array([first[place] for place in places], np.int64) + part_D
    columns = (view_D, together["category_D"], LAYOUTS["xywh"](together["boxes_D4"]), together["scores_D"])
    settings = (rule.method, rule.iou, run_D.tolist(), len(runs), weights is not None)
    fused, counts = fuse_boxes(columns, np.array(views, VIEW), *settings)

    # A fused box takes the place of the first of its boxes.
    place_K = np.array([min(item.members) for item in fused], np.int64)
    in_order = np.lexsort((together["rank_D"][place_K], run_D[place_K], together["image_D"][place_K]))
    together = {name: column[place_K[in_order]] for name, column in together.items()}
    boxes_D4 = np.array([item.box_4 for item in fused], np.float64).reshape(-1, 4)[in_order]
    boxes_D4[:, 2:] -= boxes_D4[:, :2]
    fused_columns: dict[str, Any] = together | {
        "boxes_D4": boxes_D4,
        "scores_D": np.array([item.score for item in fused], np.float64)[in_order],
    }
    return Detections(**fused_columns, unknown=runs[0].unknown), counts


def _region(tile: Box | None) -> tuple[float, ...] | None:
    """Return the part of an image that a view shows, `x1, y1, x2, y2` in pixels, None for all of it."""
    if tile is None:
        return None
    x, y, width, height = tile
    return x, y, x + width, y + height


def fusion_note(rule: FusionRule, counts: dict[str, Any]) -> str:
    """Return what was fused in one line."""
    dropped = sum(row.get("dropped", 0) for row in counts["views"])
    parts = [f"fused by {rule}: {counted(counts['boxes'], 'box', 'boxes')} became {counts['objects']:,}"]
    if counts.get("cut"):
        parts.append(f"{counts['joined']} of {counts['cut']} that the edge of a tile cuts were joined")
    if dropped:
        parts.append(counted(dropped, "without area was dropped", "without area were dropped"))
    return ", ".join(parts)
