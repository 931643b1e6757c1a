"""`fuse`: the objects of several views of one image, or several models' answers for it, as one set of objects."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from coord_codec import InputError
from coord_codec.files import finite_numbers
from coord_eval.boxes.iou import box_iou
from coord_eval.fusion.clusters import Boxes, Group, group_boxes
from coord_eval.intake.objects import ScoredObject

Method = Literal["wbf", "nms"]
METHODS: tuple[str, ...] = get_args(Method)
"""Names of the methods of fusion."""
DEFAULT_IOU = 0.55
"""IoU above which boxes are one object, as in the published weighted boxes fusion."""
_EDGE = 0.01
"""Share of a region's side within which a box's side lies on its edge."""
_SEEN = 0.5
"""Least share of a box that a view must show to be counted among those that could have found it."""
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Fusion:
    """The objects of all views together.

    Attributes:
        objects: the fused objects, by descending score
        members: for each object the places (view, index) of what became it, the highest score first
        counts: in total `boxes`, `objects`, `cut` (boxes that an inner edge of a region has cut) and `joined` (those of
            them that are part of an object with others); and `views`, for each view its `boxes` and of these `merged`
            with other views', `duplicate` of another of the same view, found by it `alone`, and `dropped`, since they
            have no area
    """

    objects: tuple[ScoredObject, ...]
    members: tuple[tuple[tuple[int, int], ...], ...]
    counts: dict[str, Any]


class LabelledBox(NamedTuple):
    """A box that fusion compares with those of the same label; `label` is any key."""

    label: Hashable
    box: Box
    score: float


class FusedBox(NamedTuple):
    """What became of the boxes at the places `members` (view, index); it is the mean of the first `averaged`."""

    box: Box
    score: float
    members: tuple[tuple[int, int], ...]
    averaged: int


@dataclass(frozen=True)
class _Item:
    """A box of a view, with the score that its view's weight gives it."""

    view: int
    index: int
    given: LabelledBox
    score: float
    cut: tuple[bool, ...]
    region: Box


def fuse(
    views: Sequence[Sequence[ScoredObject | Mapping[str, Any]]],
    *,
    method: Method = "wbf",
    iou: float | None = None,
    weights: Sequence[float] | None = None,
    regions: Sequence[Sequence[float] | None] | None = None,
    frame: tuple[float, float] = (1.0, 1.0),
) -> Fusion:
    """Fuse the boxes that several views of one image, or several models, found in it; by label.

    `wbf` is weighted boxes fusion (Solovyev et al. 2021): an object is the mean of its boxes weighted by score, and its
    score their mean times the share of the views that found it, at most 1 (or the highest of them, if that is more).
    Values are those of the package ensemble-boxes (`conf_type="avg"`), in double precision; it has no such bound, which
    several boxes of a view with a large weight can reach. Of equal scores the first counts first. `nms` keeps the box
    of the highest score.

    Where views show parts of the image (`regions`), a box cut by an inner edge is joined with its counterparts: a side
    on such an edge has no vote on where the object ends. A view counts among those that could have found an object if
    it shows at least half of it.

    Args:
        views: for each view its objects in the frame of the whole image: `ScoredObject`, or records `{"desc", "score"}`
            with a `bbox_xyxy` (or `bbox`, `box`: x1, y1, x2, y2)
        method: `wbf` or `nms`
        iou: IoU above which two are one object; None for .55
        weights: a weight for each view; None for equal ones
        regions: for each view the part `x1, y1, x2, y2` of the image that it shows, None for all of it
        frame: width and height of the image in the unit of boxes and regions

    Raises:
        InputError: for an unknown method, shapes other than boxes, or faulty values; the message names view, object and
            field

    Example:
        >>> plain = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5], "score": 0.9}]
        >>> mirrored = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.6], "score": 0.3}]
        >>> fused = fuse([plain, mirrored])
        >>> [round(side, 3) for side in fused.objects[0].box], round(fused.objects[0].score, 3)
        ([0.1, 0.1, 0.5, 0.525], 0.6)
        >>> fused.members, fused.counts["views"][0]["merged"]
        ((((0, 0), (1, 0)),), 1)
    """
    if min(finite_numbers(list(frame), 2, "frame")) <= 0:
        raise InputError(f"frame: expected a width and a height above 0, found {frame!r:.80}")
    given = [[_scored(value, f"views[{v}][{i}]") for i, value in enumerate(objects)] for v, objects in enumerate(views)]
    boxes = [[LabelledBox(o.desc, o.box, o.score) for o in objects] for objects in given]
    fused, counts = fuse_boxes(boxes, method=method, iou=iou, weights=weights, regions=regions, frame=frame)
    objects = []
    for item in fused:
        members = [given[view][index] for view, index in item.members[: item.averaged]]
        repairs = tuple(dict.fromkeys(repair for scored in members for repair in scored.repairs))
        objects.append(ScoredObject(members[0].desc, item.box, item.score, repairs))
    return Fusion(tuple(objects), tuple(item.members for item in fused), counts)


def fuse_boxes(
    views: Sequence[Sequence[LabelledBox]],
    *,
    method: str = "wbf",
    iou: float | None = None,
    weights: Sequence[float] | None = None,
    regions: Sequence[Sequence[float] | None] | None = None,
    frame: tuple[float, float] = (1.0, 1.0),
) -> tuple[list[FusedBox], dict[str, Any]]:
    """Fuse boxes as `fuse` does; return what became of them, by descending score, and the counts of `Fusion`."""
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, found {method!r:.80}")
    threshold = DEFAULT_IOU if iou is None else iou
    if not 0 <= threshold <= 1:
        raise InputError(f"iou: expected a number from 0 to 1, found {iou!r:.80}")
    if method == "wbf" and any(not 0 <= box.score < math.inf for boxes in views for box in boxes):
        raise InputError("score: expected finite numbers of at least 0, since wbf weighs boxes by them; use nms")
    shares = _weights(weights, len(views), method)
    places = _regions(regions, len(views), frame)
    by_label: dict[Hashable, list[_Item]] = {}
    dropped = [0] * len(views)
    for view, boxes in enumerate(views):
        for index, given in enumerate(boxes):
            if given.box[2] <= given.box[0] or given.box[3] <= given.box[1]:
                dropped[view] += 1
            else:
                cut = _cut(given.box, places[view], frame)
                item = _Item(view, index, given, given.score * shares[view], cut, places[view])
                by_label.setdefault(given.label, []).append(item)
    found: list[tuple[Group, float, list[_Item]]] = []
    for items in by_label.values():
        if method == "wbf":
            found += _weighted(items, threshold, shares, None if regions is None else places)
        else:
            found += _suppressed(items, threshold)
    found.sort(key=lambda row: -row[1])
    counts = _counts([items for _, _, items in found], [len(boxes) for boxes in views], dropped)
    return [
        FusedBox(
            tuple(group.box_4.tolist()), score, tuple((item.view, item.index) for item in items), len(group.members)
        )
        for group, score, items in found
    ], counts


def _weights(weights: Sequence[float] | None, views: int, method: str) -> list[float]:
    if weights is None:
        return [1.0] * views
    values = finite_numbers(list(weights), views, "weights")
    if min(values, default=1) <= 0:
        found = f"found {list(values)}"
        raise InputError(f"weights: expected numbers above 0, {found}; leave a view out rather than weigh it by 0")
    # As in the published package: fused scores are divided by the sum of weights, those of suppression beforehand.
    return [value / sum(values) for value in values] if method != "wbf" else list(values)


def _regions(
    regions: Sequence[Sequence[float] | None] | None, views: int, frame: tuple[float, float]
) -> list[tuple[float, float, float, float]]:
    whole = (0.0, 0.0, float(frame[0]), float(frame[1]))
    if regions is None:
        return [whole] * views
    if len(regions) != views:
        raise InputError(f"regions: expected one for each of {views} views, found {len(regions)}")
    places = []
    for view, region in enumerate(regions):
        x1, y1, x2, y2 = whole if region is None else finite_numbers(list(region), 4, f"regions[{view}]")
        if x2 <= x1 or y2 <= y1:
            raise InputError(f"regions[{view}]: expected x1 < x2 and y1 < y2, found {[x1, y1, x2, y2]}")
        if x1 >= whole[2] or y1 >= whole[3] or x2 <= 0 or y2 <= 0:
            raise InputError(
                f"regions[{view}]: {[x1, y1, x2, y2]} lies outside the frame {whole[2]:g} x {whole[3]:g}; name the "
                "frame in the unit of the boxes"
            )
        places.append((x1, y1, x2, y2))
    return places


def _scored(value: ScoredObject | Mapping[str, Any], where: str) -> ScoredObject:
    if isinstance(value, ScoredObject):
        scored = value
    else:
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: expected a ScoredObject or a record, found {type(value).__name__}")
        box = next((value[key] for key in ("bbox_xyxy", "bbox", "box") if key in value), None)
        desc = value.get("desc", value.get("label"))
        if not isinstance(desc, str):
            raise InputError(f"{where}.desc: expected the label as text, found {desc!r:.80}")
        x1, y1, x2, y2 = finite_numbers(box, 4, f"{where}.bbox_xyxy")
        score = finite_numbers([value.get("score")], 1, f"{where}.score")[0]
        scored = ScoredObject(desc, (x1, y1, x2, y2), score, (), (), value.get("coordinates", ()))
    if not np.isfinite(scored.score) or scored.score < 0:
        raise InputError(f"{where}.score: expected a number of at least 0, found {scored.score!r}")
    if scored.coordinates:
        raise InputError(f"{where}.coordinates: expected a box, found another shape; only boxes are fused")
    return scored


def _cut(box: Box, region: Box, frame: tuple[float, float]) -> tuple[bool, ...]:
    """Return whether each side of a box lies on an edge of its region that is not the image's own."""
    border = (0.0, 0.0, *frame)
    sides = []
    for i in range(4):
        length = region[i % 2 + 2] - region[i % 2]
        is_inner = abs(region[i] - border[i]) > 1e-6 * frame[i % 2]
        sides.append(is_inner and abs(box[i] - region[i]) <= _EDGE * length)
    return tuple(sides)


def _boxes(items: Sequence[_Item]) -> Boxes:
    return Boxes(
        np.array([item.given.box for item in items], np.float64),
        np.array([item.score for item in items], np.float64),
        np.array([item.cut for item in items], bool),
        np.array([item.region for item in items], np.float64),
    )


def _weighted(
    items: Sequence[_Item], threshold: float, shares: Sequence[float], regions: Sequence[Box] | None
) -> Iterator[tuple[Group, float, list[_Item]]]:
    """Yield what weighted boxes fusion makes of the boxes of one label: group, score and members of each."""
    boxes, weight_V = _boxes(items), np.array(shares, np.float64)
    for group in group_boxes(boxes, threshold):
        members = [items[n] for n in group.members]
        could_V = np.ones(len(weight_V), bool) if regions is None else _shown(group.box_4, np.array(regions))
        could_V[[item.view for item in members]] = True
        total = boxes.score_N[list(group.members)].sum()
        score = total / len(members) * min(int(could_V.sum()), len(members)) / weight_V[could_V].sum()
        # Several boxes of a view with a large weight may give more than 1.
        bound = max(1.0, *(item.given.score for item in members))
        yield group, min(float(score), bound), members


def _suppressed(items: Sequence[_Item], threshold: float) -> Iterator[tuple[Group, float, list[_Item]]]:
    """Join boxes of one label that an edge cuts; yield those that none of a higher score overlaps, and the members."""
    boxes = _boxes(items)
    groups = group_boxes(boxes, threshold, join_only=True)
    best_K = np.array([boxes.score_N[group.members[0]] for group in groups])
    box_K4 = np.stack([group.box_4 for group in groups])
    box_K4[:, 2:] -= box_K4[:, :2]
    left = np.argsort(-best_K, kind="stable")
    while len(left):
        first, others = int(left[0]), left[1:]
        is_near_n = box_iou(box_K4[others], box_K4[first]) > threshold
        rows = (first, *others[is_near_n].tolist())
        yield groups[first], float(best_K[first]), [items[n] for k in rows for n in groups[k].members]
        left = others[~is_near_n]


def _shown(box_4: np.ndarray, region_V4: np.ndarray) -> np.ndarray:
    """Return whether each view shows at least half of a box."""
    area = float((box_4[2:] - box_4[:2]).prod())
    ends_V2 = np.minimum(box_4[2:], region_V4[:, 2:])
    common_V = np.clip(ends_V2 - np.maximum(box_4[:2], region_V4[:, :2]), 0, None).prod(axis=1)
    shown_V: np.ndarray = common_V >= _SEEN * area
    return shown_V


def _counts(found: list[list[_Item]], boxes: list[int], dropped: list[int]) -> dict[str, Any]:
    """Count what was merged, by view."""
    rows = [
        {"boxes": total, "merged": 0, "duplicate": 0, "alone": 0, "dropped": without}
        for total, without in zip(boxes, dropped, strict=True)
    ]
    cut = joined = 0
    for items in found:
        seen: set[int] = set()
        views = {item.view for item in items}
        for item in items:
            row = rows[item.view]
            row["duplicate"] += item.view in seen
            row["merged"] += item.view not in seen and len(views) > 1
            row["alone"] += item.view not in seen and len(views) == 1
            seen.add(item.view)
            cut += any(item.cut)
            joined += any(item.cut) and len(items) > 1
    totals = {"boxes": sum(boxes), "objects": len(found), "cut": cut, "joined": joined}
    return {"views": rows, **totals}
