"""Fusion of the boxes of a whole set of images: near-duplicates within one set of answers, or several sets.

Shapes: N boxes, V views of all images, K fused boxes, v views of one image, n boxes of one label and image, k groups of
them; boxes and regions are `x1, y1, x2, y2`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from coord_codec import Geometry, InputError, geometry_of
from coord_codec.box_table import BoxTable
from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_codec.files import finite_numbers
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.iou import box_iou
from coord_eval.fusion.clusters import as_xywh, group_boxes
from coord_eval.settings import FusionRule

Weights: TypeAlias = "Sequence[float] | None"
_EDGE = 0.01
"""Share of a region's side within which a box's side lies on its edge."""
_SEEN = 0.5
"""Least share of a box that a view must show to be counted among those that could have found it."""
VIEW = np.dtype([("image", int), ("run", int), ("region", float, 4), ("in_parts", bool)])
"""A view: index of its image and run (a model or a view of one image), what it shows, whether views show parts."""
_SIDES = [("box", float, 4), ("region", float, 4), ("cut", bool, 4)]
_BOX = np.dtype([("view", int), ("score", float), ("weighed", float), *_SIDES])


class Fused(NamedTuple):
    """What became of the boxes `members` (indices, the highest score first): the mean of the first `averaged`."""

    box_4: np.ndarray
    score: float
    members: list[int]
    averaged: int


def views_of(
    image: int, regions: Sequence[Sequence[float] | None] | None, runs: Sequence[int], frame: Sequence[float]
) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `VIEW` for each view of one image; `regions` and `frame` are those of `coord_eval.fuse`."""
    *_, width, height = whole = (0.0, 0.0, float(frame[0]), float(frame[1]))
    if regions is not None and len(regions) != len(runs):
        raise InputError(f"regions: expected one for each of {len(runs)} views, found {len(regions)}")
    for view, (run, given) in enumerate(zip(runs, regions or [None] * len(runs), strict=True)):
        region = whole if given is None else finite_numbers(list(given), 4, f"regions[{view}]")
        x1, y1, x2, y2 = region
        if given is not None and (x2 <= x1 or y2 <= y1):
            raise InputError(f"regions[{view}]: expected x1 < x2 and y1 < y2, found {list(region)}")
        if given is not None and (x1 >= width or y1 >= height or x2 <= 0 or y2 <= 0):
            outside = f"{list(region)} lies outside the frame {width:g} x {height:g}"
            raise InputError(f"regions[{view}]: {outside}; name the frame in the unit of the boxes")
        yield image, run, region, regions is not None


def fuse_boxes(
    table: BoxTable, view_N: np.ndarray, views_V: np.ndarray, runs: int, weights: Weights, rule: FusionRule
) -> tuple[list[Fused], dict[str, Any]]:
    """Fuse boxes of the same image and label, as `coord_eval.fuse` describes it.

    Boxes are sorted by view, and the rows of `VIEW` by image. `weights` are those of the runs, None for ones; `nms`
    divides them by their sum, as the published package does.

    Returns:
        The fused boxes, by the first box of their image and label, and the counts of `coord_eval.Fusion` by run.

    Raises:
        InputError: for weights or scores by which boxes cannot be weighed
    """
    values = [1.0] * runs if weights is None else list(finite_numbers(list(weights), runs, "weights"))
    if min(values, default=1) <= 0:
        raise InputError(
            f"weights: expected numbers above 0, found {values}; leave a view out rather than weigh it by 0"
        )
    weight_V, image_V = np.array(values)[views_V["run"]], views_V["image"]
    if weights is not None and rule.method == "nms":
        weight_V = weight_V / np.bincount(image_V, weight_V)[image_V]
    if rule.method == "wbf" and not ((table.score_N >= 0) & (table.score_N < math.inf)).all():
        raise InputError(
            "score: expected finite numbers of at least 0, since wbf weighs boxes by them; calibrate them, or use nms"
        )
    boxes_N = np.zeros(len(table), _BOX)
    boxes_N["view"], boxes_N["box"], boxes_N["score"] = view_N, table.boxes_N4, table.score_N
    boxes_N["region"], boxes_N["weighed"] = views_V["region"][view_N], table.score_N * weight_V[view_N]
    if views_V["in_parts"].any():
        boxes_N["cut"] = _cut(table.boxes_N4, boxes_N["region"], table.sizes_I2[table.image_N])
    x1_N, y1_N, x2_N, y2_N = table.boxes_N4.T
    has_area_N = (x1_N < x2_N) & (y1_N < y2_N)
    rows_of: dict[tuple[int, int], list[int]] = {}
    images, labels = table.image_N.tolist(), table.label_N.tolist()
    for n in np.flatnonzero(has_area_N).tolist():
        rows_of.setdefault((images[n], labels[n]), []).append(n)
    fused: list[Fused] = []
    for (image, _), rows in rows_of.items():
        if rule.method == "nms":
            fused += _suppressed(boxes_N, rows, rule.iou)
        else:
            first, end = np.searchsorted(image_V, [image, image + 1]).tolist()
            fused += _weighted(boxes_N, rows, first, views_V[first:end], weight_V[first:end], rule.iou)
    return fused, _counts(fused, boxes_N, has_area_N, views_V["run"].tolist(), runs)


def fuse_detections(
    runs: Sequence[Detections], rule: FusionRule, geometry: str | Geometry, weights: Weights = None
) -> tuple[Detections, dict[str, Any]]:
    """Fuse the detections of several runs beside one ground truth, or the near-duplicates of a single run.

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
    first_IR = np.zeros((len(table.image_ids), len(runs)), np.int64)
    for image in np.unique(table.image_N).tolist():
        tiles: list[Any] = []
        runs_v: list[int] = []
        for r, run in enumerate(runs):
            first_IR[image, r] = len(views) + len(tiles)
            tiles += run.asked.get(image, (None,))
            runs_v += [r] * (len(tiles) - len(runs_v))
        regions = [None if tile is None else LAYOUTS["xywh"](np.array([tile]))[0] for tile in tiles]
        views += views_of(image, regions if any(tiles) else None, runs_v, table.sizes_I2[image])
    view_D = first_IR[table.image_N, run_D] + part_D
    fused, counts = fuse_boxes(table, view_D, np.array(views, VIEW), len(runs), weights, rule)

    # A fused box takes the place of the first of its boxes.
    place_K = np.array([min(item.members) for item in fused], np.int64)
    order_K = np.lexsort((table.order_N[place_K], run_D[place_K], table.image_N[place_K]))
    boxes_K4 = np.array([item.box_4 for item in fused], np.float64).reshape(-1, 4)
    score_K = np.array([item.score for item in fused], np.float64)
    kept = Detections(table.take(place_K[order_K]), runs[0].known)
    return kept.moved(boxes_K4[order_K], score_N=score_K[order_K]), counts


def fusion_note(rule: FusionRule, counts: dict[str, Any]) -> str:
    """Return what was fused in one line."""
    dropped = sum(row["dropped"] for row in counts["views"])
    parts = [f"fused by {rule}: {counted(counts['boxes'], 'box', 'boxes')} became {counts['objects']:,}"]
    if counts["cut"]:
        parts.append(f"{counts['joined']} of {counts['cut']} that the edge of a tile cuts were joined")
    if dropped:
        parts.append(counted(dropped, "without area was dropped", "without area were dropped"))
    return ", ".join(parts)


def _weighted(
    boxes_N: np.ndarray, rows: list[int], first: int, views_v: np.ndarray, weight_v: np.ndarray, threshold: float
) -> Iterator[Fused]:
    """Yield what weighted boxes fusion makes of the boxes of one label; `first` is the index of the first view."""
    views, weight = len(views_v), weight_v.sum()
    for members, box_4 in group_boxes(boxes_N, rows, threshold):
        if views_v["in_parts"][0]:
            could_v = _shown(box_4, views_v["region"])
            could_v[boxes_N["view"][members] - first] = True
            views, weight = int(could_v.sum()), weight_v[could_v].sum()
        score = boxes_N["weighed"][members].sum() / len(members) * min(views, len(members)) / weight
        # Several boxes of a view with a large weight may give more than 1.
        bound = max(1.0, *boxes_N["score"][members].tolist())
        yield Fused(box_4, min(float(score), bound), members, len(members))


def _suppressed(boxes_N: np.ndarray, rows: list[int], threshold: float) -> Iterator[Fused]:
    """Join boxes of one label that an edge cuts; yield those that none of a higher score overlaps."""
    groups = group_boxes(boxes_N, rows, threshold, join_only=True)
    best_k = boxes_N["weighed"][[members[0] for members, _ in groups]]
    xywh_k4 = as_xywh(np.stack([box_4 for _, box_4 in groups]))
    left = np.argsort(-best_k, kind="stable")
    while len(left):
        first, others = int(left[0]), left[1:]
        is_near_n = box_iou(xywh_k4[others], xywh_k4[first]) > threshold
        members, box_4 = groups[first]
        suppressed = chain.from_iterable(groups[k][0] for k in others[is_near_n].tolist())
        yield Fused(box_4, float(best_k[first]), [*members, *suppressed], len(members))
        left = others[~is_near_n]


def _counts(
    fused: Sequence[Fused], boxes_N: np.ndarray, has_area_N: np.ndarray, run_V: list[int], runs: int
) -> dict[str, Any]:
    rows = [dict.fromkeys(("boxes", "merged", "duplicate", "alone", "dropped"), 0) for _ in range(runs)]
    view_N, cut_N = boxes_N["view"].tolist(), np.asarray(boxes_N["cut"].any(axis=1))
    for view, has_area in zip(view_N, has_area_N.tolist(), strict=True):
        rows[run_V[view]]["boxes"] += 1
        rows[run_V[view]]["dropped"] += not has_area
    for item in fused:
        times = Counter(view_N[n] for n in item.members)
        for view, count in times.items():
            rows[run_V[view]]["duplicate"] += count - 1
            rows[run_V[view]]["merged" if len(times) > 1 else "alone"] += 1
    cut = int((cut_N & has_area_N).sum())
    joined = sum(int(cut_N[item.members].sum()) for item in fused if len(item.members) > 1) if cut else 0
    return {"views": rows, "boxes": len(boxes_N), "objects": len(fused), "cut": cut, "joined": joined}


def _cut(box_N4: np.ndarray, region_N4: np.ndarray, frame_N2: np.ndarray) -> np.ndarray:
    """Return whether each side of a box lies on an edge of its region that is not the image's own."""
    border_N4 = np.concatenate([np.zeros_like(frame_N2), frame_N2], axis=1)
    length_N4 = np.tile(region_N4[:, 2:] - region_N4[:, :2], 2)
    is_inner_N4 = np.abs(region_N4 - border_N4) > 1e-6 * np.tile(frame_N2, 2)
    cut_N4: np.ndarray = is_inner_N4 & (np.abs(box_N4 - region_N4) <= _EDGE * length_N4)
    return cut_N4


def _shown(box_4: np.ndarray, region_V4: np.ndarray) -> np.ndarray:
    """Return whether each view shows at least half of a box."""
    area = float((box_4[2:] - box_4[:2]).prod())
    ends_V2 = np.minimum(box_4[2:], region_V4[:, 2:])
    common_V = np.clip(ends_V2 - np.maximum(box_4[:2], region_V4[:, :2]), 0, None).prod(axis=1)
    shown_V: np.ndarray = common_V >= _SEEN * area
    return shown_V
