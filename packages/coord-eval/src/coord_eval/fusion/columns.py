"""Fusion of the boxes of a whole set of images, in columns.

Shapes: N boxes, R runs (models or views of one image) with a weight each, V views of all images, K fused boxes, v views
of one image, n boxes of one label and image, k groups of them; boxes and regions are `x1, y1, x2, y2`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class FusionRule:
    """How boxes are fused.

    Attributes:
        method: `wbf` or `nms`
        iou: IoU above which two boxes are one object

    Example:
        >>> FusionRule.parse("nms:0.6"), str(FusionRule.parse("wbf"))
        (FusionRule(method='nms', iou=0.6), 'wbf:0.55')
    """

    method: str = "wbf"
    iou: float = DEFAULT_IOU

    def __post_init__(self) -> None:
        """Raise an error for an unknown method, or a threshold that is no IoU."""
        if self.method not in METHODS:
            raise InputError(f"method: expected one of {', '.join(METHODS)}, found {self.method!r:.80}")
        if not 0 <= self.iou <= 1:
            raise InputError(f"iou: expected a number from 0 to 1, found {self.iou!r:.80}")

    @classmethod
    def parse(cls, text: str) -> FusionRule:
        """Return the rule that a text `METHOD[:IOU]` states, as `--fuse` takes it.

        Raises:
            InputError: for another text
        """
        method, colon, number = text.partition(":")
        try:
            return cls(method, float(number) if colon else DEFAULT_IOU)
        except ValueError as error:
            raise InputError(
                f"fuse: expected {', '.join(METHODS)}, with an IoU from 0 to 1 after a colon, such as nms:0.5, found "
                f"{text!r:.80}"
            ) from error

    def __str__(self) -> str:
        return f"{self.method}:{self.iou:g}"


_EDGE = 0.01
"""Share of a region's side within which a box's side lies on its edge."""
_SEEN = 0.5
"""Least share of a box that a view must show to be counted among those that could have found it."""
VIEW = np.dtype([("image", int), ("run", int), ("region", float, 4), ("frame", float, 2), ("in_parts", bool)])
"""A view: index of its image and run, what it shows, width and height of the image, whether its views show parts."""
_SIDES = [("box", float, 4), ("region", float, 4), ("cut", bool, 4)]
_BOX = np.dtype([("view", int), ("score", float), ("weighed", float), *_SIDES])


class Fused(NamedTuple):
    """What became of the boxes `members` (indices, the highest score first): the mean of the first `averaged`."""

    box_4: np.ndarray
    score: float
    members: list[int]
    averaged: int


def views_of(
    image: int, regions: Sequence[Sequence[float] | None] | None, runs: Sequence[int], frame: tuple[float, float]
) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `VIEW` for each view of one image; `regions` and `frame` are those of `coord_eval.fuse`.

    Raises:
        InputError: for a region without area or outside the frame
    """
    whole = (0.0, 0.0, float(frame[0]), float(frame[1]))
    if regions is not None and len(regions) != len(runs):
        raise InputError(f"regions: expected one for each of {len(runs)} views, found {len(regions)}")
    for view, run in enumerate(runs):
        region = None if regions is None else regions[view]
        x1, y1, x2, y2 = whole if region is None else finite_numbers(list(region), 4, f"regions[{view}]")
        if regions is not None and (x2 <= x1 or y2 <= y1):
            raise InputError(f"regions[{view}]: expected x1 < x2 and y1 < y2, found {[x1, y1, x2, y2]}")
        if regions is not None and (x1 >= whole[2] or y1 >= whole[3] or x2 <= 0 or y2 <= 0):
            raise InputError(
                f"regions[{view}]: {[x1, y1, x2, y2]} lies outside the frame {whole[2]:g} x {whole[3]:g}; name the "
                "frame in the unit of the boxes"
            )
        yield image, run, (x1, y1, x2, y2), frame, regions is not None


def fuse_boxes(
    columns: tuple[Any, Any, Any, Any],
    views_V: np.ndarray,
    runs: int,
    weights: Sequence[float] | None,
    rule: FusionRule,
) -> tuple[list[Fused], dict[str, Any]]:
    """Fuse boxes of the same image and label, as `coord_eval.fuse` describes it.

    Args:
        columns: view, label, corners and score of each box; boxes are sorted by view
        views_V: rows of `VIEW`, those of an image one after another
        runs: number of runs
        weights: a weight for each run, None for ones; `nms` divides them by their sum, as the published package does
        rule: method and threshold

    Returns:
        The fused boxes, by the first box of their image and label, and the counts of `coord_eval.Fusion` by run.

    Raises:
        InputError: for weights or scores by which boxes cannot be weighed
    """
    values = [1.0] * runs if weights is None else list(finite_numbers(list(weights), runs, "weights"))
    if min(values, default=1) <= 0:
        found = f"found {values}"
        raise InputError(f"weights: expected numbers above 0, {found}; leave a view out rather than weigh it by 0")
    weight_V, image_V = np.array(values)[views_V["run"]], views_V["image"]
    if weights is not None and rule.method == "nms":
        weight_V = weight_V / np.bincount(image_V, weight_V)[image_V]
    view_N, label_N, box_N4, score_N = map(np.asarray, columns)
    if rule.method == "wbf" and not ((score_N >= 0) & (score_N < math.inf)).all():
        raise InputError("score: expected finite numbers of at least 0, since wbf weighs boxes by them; use nms")
    own_N = views_V[view_N]
    boxes_N = np.zeros(len(view_N), _BOX)
    boxes_N["view"], boxes_N["box"], boxes_N["score"], boxes_N["region"] = view_N, box_N4, score_N, own_N["region"]
    boxes_N["weighed"] = score_N * weight_V[view_N]
    if views_V["in_parts"].any():
        boxes_N["cut"] = _cut(box_N4, own_N["region"], own_N["frame"])
    has_area_N = (box_N4[:, 0] < box_N4[:, 2]) & (box_N4[:, 1] < box_N4[:, 3])
    rows_of: dict[tuple[int, int], list[int]] = {}
    keys = zip(own_N["image"].tolist(), label_N.tolist(), has_area_N.tolist(), strict=True)
    for n, (image, label, has_area) in enumerate(keys):
        if has_area:
            rows_of.setdefault((image, label), []).append(n)
    fused: list[Fused] = []
    for (image, _), rows in rows_of.items():
        if rule.method == "nms":
            fused += _suppressed(boxes_N, rows, rule.iou)
        else:
            first, end = np.searchsorted(image_V, [image, image + 1]).tolist()
            fused += _weighted(boxes_N, rows, first, views_V[first:end], weight_V[first:end], rule.iou)
    return fused, _counts(fused, boxes_N, has_area_N, views_V["run"].tolist(), runs)


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
