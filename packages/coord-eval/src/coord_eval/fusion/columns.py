"""Fusion of the boxes of a whole set of images, in columns.

Shapes: N boxes, V views of all images, K fused boxes, v views of one image, n boxes of one label and image, k groups of
them; boxes and regions are `x1, y1, x2, y2`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from coord_codec import InputError
from coord_codec.files import finite_numbers
from coord_eval.boxes.iou import box_iou
from coord_eval.fusion.clusters import as_xywh, group_boxes

Method = Literal["wbf", "nms"]
METHODS: tuple[str, ...] = get_args(Method)
"""Names of the methods of fusion."""
DEFAULT_IOU = 0.55
"""IoU above which boxes are one object, as in the published weighted boxes fusion."""
_EDGE = 0.01
"""Share of a region's side within which a box's side lies on its edge."""
_SEEN = 0.5
"""Least share of a box that a view must show to be counted among those that could have found it."""
VIEW = np.dtype([("image", int), ("weight", float), ("region", float, 4), ("frame", float, 2), ("in_parts", bool)])
"""A view: index of its image, weight, what it shows, width and height of the image, whether its views show parts."""
_PLACE = [("image", int), ("label", int), ("view", int), ("box", float, 4)]
_BOX = np.dtype([*_PLACE, ("score", float), ("weighed", float), ("cut", bool, 4), ("region", float, 4)])


class Fused(NamedTuple):
    """What became of the boxes `members` (indices, the highest score first): the mean of the first `averaged`."""

    box_4: np.ndarray
    score: float
    members: list[int]
    averaged: int


def views_of(
    image: int, regions: Sequence[Sequence[float] | None] | None, weights: Sequence[float], frame: tuple[float, float]
) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `VIEW` for each view of one image; `regions` and `frame` are those of `coord_eval.fuse`.

    Raises:
        InputError: for a region without area or outside the frame
    """
    whole = (0.0, 0.0, float(frame[0]), float(frame[1]))
    if regions is not None and len(regions) != len(weights):
        raise InputError(f"regions: expected one for each of {len(weights)} views, found {len(regions)}")
    for view, weight in enumerate(weights):
        region = None if regions is None else regions[view]
        x1, y1, x2, y2 = whole if region is None else finite_numbers(list(region), 4, f"regions[{view}]")
        if regions is not None and (x2 <= x1 or y2 <= y1):
            raise InputError(f"regions[{view}]: expected x1 < x2 and y1 < y2, found {[x1, y1, x2, y2]}")
        if regions is not None and (x1 >= whole[2] or y1 >= whole[3] or x2 <= 0 or y2 <= 0):
            raise InputError(
                f"regions[{view}]: {[x1, y1, x2, y2]} lies outside the frame {whole[2]:g} x {whole[3]:g}; name the "
                "frame in the unit of the boxes"
            )
        yield image, weight, (x1, y1, x2, y2), frame, regions is not None


def checked_weights(weights: Sequence[float] | None, views: int) -> list[float]:
    """Return a weight for each view, ones for None.

    Raises:
        InputError: for another number of weights, or one that is not above 0
    """
    values = [1.0] * views if weights is None else list(finite_numbers(list(weights), views, "weights"))
    if min(values, default=1) <= 0:
        found = f"found {values}"
        raise InputError(f"weights: expected numbers above 0, {found}; leave a view out rather than weigh it by 0")
    return values


def fuse_boxes(
    columns: tuple[Any, Any, Any, Any],
    views_V: np.ndarray,
    method: str,
    threshold: float,
    run_N: Sequence[int],
    runs: int,
    normalized: bool,
) -> tuple[list[Fused], dict[str, Any]]:
    """Fuse boxes of the same image and label, as `coord_eval.fuse` describes it.

    Args:
        columns: view, label, corners and score of each box; boxes are sorted by view
        views_V: rows of `VIEW`, those of an image one after another
        method: `wbf` or `nms`
        threshold: IoU above which two boxes are one object
        run_N: row of the counts of views to which each box adds
        runs: number of these rows
        normalized: whether `nms` divides weights by their sum, as the published package does with those that are given

    Returns:
        The fused boxes, by the first box of their image and label, and the counts of `coord_eval.Fusion`.

    Raises:
        InputError: for an unknown method, a threshold that is no IoU, or scores by which boxes cannot be weighed
    """
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, found {method!r:.80}")
    if not 0 <= threshold <= 1:
        raise InputError(f"iou: expected a number from 0 to 1, found {threshold!r:.80}")
    weight_V = views_V["weight"]
    if normalized and method == "nms":
        weight_V = weight_V / np.bincount(views_V["image"], weight_V)[views_V["image"]]
    view_N, label_N, box_N4, score_N = columns
    boxes_N = np.zeros(len(view_N), _BOX)
    own_N = views_V[view_N]
    boxes_N["view"], boxes_N["label"], boxes_N["box"], boxes_N["score"] = view_N, label_N, box_N4, score_N
    boxes_N["image"], boxes_N["region"] = own_N["image"], own_N["region"]
    boxes_N["weighed"] = boxes_N["score"] * weight_V[view_N]
    if views_V["in_parts"].any():
        boxes_N["cut"] = _cut(boxes_N["box"], own_N["region"], own_N["frame"])
    if method == "wbf" and not ((boxes_N["score"] >= 0) & (boxes_N["score"] < math.inf)).all():
        raise InputError("score: expected finite numbers of at least 0, since wbf weighs boxes by them; use nms")
    x1_N, y1_N, x2_N, y2_N = boxes_N["box"].T
    dropped_N = (x2_N <= x1_N) | (y2_N <= y1_N)
    rows_of: dict[tuple[int, int], list[int]] = {}
    keys = zip(boxes_N["image"].tolist(), boxes_N["label"].tolist(), strict=True)
    for n, (key, is_dropped) in enumerate(zip(keys, dropped_N.tolist(), strict=True)):
        if not is_dropped:
            rows_of.setdefault(key, []).append(n)
    found: list[Fused] = []
    first_V = np.searchsorted(views_V["image"], views_V["image"]).tolist()
    last_V = np.searchsorted(views_V["image"], views_V["image"], side="right").tolist()
    for rows in rows_of.values():
        if method == "wbf":
            view = boxes_N["view"][rows[0]]
            found += _weighted(boxes_N, rows, first_V[view], views_V[first_V[view] : last_V[view]], threshold)
        else:
            found += _suppressed(boxes_N, rows, threshold)
    return found, _counts([item.members for item in found], boxes_N, dropped_N, run_N, runs)


def _groups(
    boxes_N: np.ndarray, rows: list[int], threshold: float, join_only: bool = False
) -> list[tuple[list[int], np.ndarray]]:
    """Return the rows and the box of each group of one label."""
    if len(rows) == 1:
        return [(rows, boxes_N["box"][rows[0]])]
    groups = group_boxes(boxes_N[rows], threshold, join_only=join_only)
    return [([rows[member] for member in members], box_4) for members, box_4 in groups]


def _weighted(
    boxes_N: np.ndarray, rows: list[int], first: int, views_v: np.ndarray, threshold: float
) -> Iterator[Fused]:
    """Yield what weighted boxes fusion makes of the boxes of one label; `first` is the index of the first view."""
    weight_v, weighed_N, score_N = views_v["weight"], boxes_N["weighed"], boxes_N["score"]
    in_parts, views, weight = bool(views_v["in_parts"][0]), len(views_v), weight_v.sum()
    for members, box_4 in _groups(boxes_N, rows, threshold):
        if in_parts:
            could_v = _shown(box_4, views_v["region"])
            could_v[boxes_N["view"][members] - first] = True
            views, weight = int(could_v.sum()), weight_v[could_v].sum()
        score = weighed_N[members].sum() / len(members) * min(views, len(members)) / weight
        # Several boxes of a view with a large weight may give more than 1.
        bound = max(1.0, *score_N[members].tolist())
        yield Fused(box_4, min(float(score), bound), members, len(members))


def _suppressed(boxes_N: np.ndarray, rows: list[int], threshold: float) -> Iterator[Fused]:
    """Join boxes of one label that an edge cuts; yield those that none of a higher score overlaps."""
    groups = _groups(boxes_N, rows, threshold, join_only=True)
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
    members: Sequence[list[int]], boxes_N: np.ndarray, dropped_N: np.ndarray, run_N: Sequence[int], runs: int
) -> dict[str, Any]:
    views = [dict.fromkeys(("boxes", "merged", "duplicate", "alone", "dropped"), 0) for _ in range(runs)]
    view_N: list[int] = boxes_N["view"].tolist()
    cut_N = np.asarray(boxes_N["cut"].any(axis=1)).tolist()
    for run, is_dropped in zip(run_N, dropped_N.tolist(), strict=True):
        views[run]["boxes"] += 1
        views[run]["dropped"] += is_dropped
    cut = joined = 0
    for rows in members:
        first: dict[int, int] = {}
        for n in rows:
            if first.setdefault(view_N[n], n) != n:
                views[run_N[n]]["duplicate"] += 1
            cut += cut_N[n]
            joined += cut_N[n] and len(rows) > 1
        for n in first.values():
            views[run_N[n]]["merged" if len(first) > 1 else "alone"] += 1
    return {"views": views, "boxes": len(run_N), "objects": len(members), "cut": cut, "joined": joined}


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
