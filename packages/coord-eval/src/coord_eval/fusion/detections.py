"""Fuses the detections of a set of images: near-duplicates within one set of answers, or an ensemble of several sets.

Shapes: D detections of all runs, K fused ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coord_codec import Geometry, InputError, geometry_of
from coord_codec.box_table import BoxTable
from coord_codec.counts import counted
from coord_codec.layouts import LAYOUTS
from coord_eval.boxes.detections import Detections
from coord_eval.fusion.columns import VIEW, FusionRule, fuse_boxes, views_of


def fuse_detections(
    runs: Sequence[Detections], rule: FusionRule, geometry: str | Geometry, weights: Sequence[float] | None = None
) -> tuple[Detections, dict[str, Any]]:
    """Fuse the detections of several runs for the same images and categories.

    Args:
        runs: the detections of each run, beside one ground truth; of a single one, near-duplicates are fused
        rule: method and threshold
        geometry: geometry of the objects
        weights: a weight for each run, None for equal ones

    Returns:
        The fused detections, those of an image in the order of the answers, and the counts of `Fusion` over all images.

    Raises:
        InputError: for shapes other than boxes
    """
    if not (kind := geometry_of(geometry)).is_box:
        raise InputError(f"fuse: geometry {kind.name}: expected boxes, since only these are fused")
    table = runs[0].table if len(runs) == 1 else BoxTable.concatenate(run.table for run in runs)
    run_D = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
    part_D = np.concatenate([np.zeros(len(run), np.int64) if run.part_D is None else run.part_D for run in runs])
    order = np.lexsort((table.order_N, part_D, run_D, table.image_N))
    table, run_D, part_D = table.take(order), run_D[order], part_D[order]

    # Each part of an image that a run was asked about is a view.
    views: list[tuple[Any, ...]] = []
    first: dict[tuple[int, int], int] = {}
    for image in np.unique(table.image_N).tolist():
        parts: list[tuple[int, Any]] = []
        for r, run in enumerate(runs):
            first[image, r] = len(views) + len(parts)
            tiles = run.asked.get(image, (None,))
            parts += [(r, None if tile is None else LAYOUTS["xywh"](np.array([tile]))[0]) for tile in tiles]
        regions = [region for _, region in parts]
        is_in_parts = any(region is not None for region in regions)
        width, height = table.sizes_I2[image].tolist()
        views += views_of(image, regions if is_in_parts else None, [r for r, _ in parts], (width, height))
    places = zip(table.image_N.tolist(), run_D.tolist(), strict=True)
    view_D = np.array([first[place] for place in places], np.int64) + part_D
    columns = (view_D, table.label_N, table.boxes_N4, table.score_N)
    fused, counts = fuse_boxes(columns, np.array(views, VIEW), len(runs), weights, rule)

    # A fused box takes the place of the first of its boxes.
    place_K = np.array([min(item.members) for item in fused], np.int64)
    order_K = np.lexsort((table.order_N[place_K], run_D[place_K], table.image_N[place_K]))
    boxes_K4 = np.array([item.box_4 for item in fused], np.float64).reshape(-1, 4)
    score_K = np.array([item.score for item in fused], np.float64)
    kept = Detections(table.take(place_K[order_K]), runs[0].known)
    return kept.moved(boxes_K4[order_K], score_N=score_K[order_K]), counts


def fusion_note(rule: FusionRule, counts: dict[str, Any]) -> str:
    """Return what was fused in one line."""
    dropped = sum(row.get("dropped", 0) for row in counts["views"])
    parts = [f"fused by {rule}: {counted(counts['boxes'], 'box', 'boxes')} became {counts['objects']:,}"]
    if counts.get("cut"):
        parts.append(f"{counts['joined']} of {counts['cut']} that the edge of a tile cuts were joined")
    if dropped:
        parts.append(counted(dropped, "without area was dropped", "without area were dropped"))
    return ", ".join(parts)
