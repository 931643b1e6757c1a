"""`fuse`: the objects of several views of one image, or several models' answers for it, as one set of objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from coord_codec import Geometry, InputError, geometry_of
from coord_codec.files import finite_numbers
from coord_eval.fusion.clusters import Boxes, Group, group_boxes
from coord_eval.fusion.shapes import Shapes
from coord_eval.fusion.suppression import nms, soft_nms
from coord_eval.objects import ScoredObject
from coord_eval.overlaps import box_iou
from coord_eval.shapes.similarity import similarity_of

Method = Literal["wbf", "nms", "soft-nms"]
METHODS: tuple[str, ...] = get_args(Method)
"""Names of the methods of fusion."""
DEFAULT_IOU = 0.55
"""IoU above which boxes are one object, as in the published weighted boxes fusion."""
EDGE = 0.01
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
        counts: in total `boxes`, `objects`, `cut` (boxes that an inner edge of a region has cut), `joined` (those of
            them that are part of an object with others) and `left_out` (scores below `min_score`, for soft-nms after it
            lowered them); and `views`, for each view its `boxes` and of these `merged` with other views', `duplicate`
            of another of the same view, found by it `alone`, and `dropped`, since they have no area
    """

    objects: tuple[ScoredObject, ...]
    members: tuple[tuple[tuple[int, int], ...], ...]
    counts: dict[str, Any]


@dataclass(frozen=True)
class _Item:
    """An object of a view, with the score that its view's weight gives it."""

    view: int
    index: int
    scored: ScoredObject
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
    geometry: str | Geometry = "box",
    size: tuple[float, float] | None = None,
    min_score: float = 0.0,
    sigma: float | None = None,
    edge: float = EDGE,
) -> Fusion:
    """Fuse the objects that several views of one image, or several models, found in it; by label.

    `wbf` is weighted boxes fusion (Solovyev et al. 2021): an object is the mean of its boxes weighted by score, and its
    score their mean times the share of the views that found it, at most 1 (or the highest of them, if that is more).
    Values are those of the package ensemble-boxes (`conf_type="avg"`), in double precision; it has no such bound, which
    several boxes of a view with a large weight can reach. Of equal scores the first counts first. `nms` keeps the box
    of the highest score, `soft-nms` (Bodla et al. 2017) keeps all boxes and lowers the scores of near-duplicates.

    Where views show parts of the image (`regions`), a box cut by an inner edge is joined with its counterparts: a side
    on such an edge has no vote on where the object ends. A view counts among those that could have found an object if
    it shows at least half of it.

    Shapes are compared by the measure of their geometry. Points, oriented boxes and keypoints are averaged point by
    point; of polygons and geometries of your own that of the highest score stands for all.

    Args:
        views: for each view its objects in the frame of the whole image: `ScoredObject`, or records `{"desc", "score"}`
            with a `bbox_xyxy` (or `bbox`, `box`: x1, y1, x2, y2), and `coordinates` for shapes
        method: `wbf`, `nms` or `soft-nms`
        iou: IoU (similarity of shapes) above which two are one object; None for .55, and for points for a distance of
            2 % of the image's diagonal
        weights: a weight for each view; None for equal ones
        regions: for each view the part `x1, y1, x2, y2` of the image that it shows, None for all of it
        frame: width and height of the image in the unit of boxes and regions
        geometry: geometry of the objects
        size: width and height of the image in pixels, which measures of shapes need
        min_score: objects of a lower score are left out before; for `soft-nms` also those that come down to it
        sigma: for `soft-nms` the width of a Gaussian, which lowers the scores at any overlap; None for the linear form,
            which does so above `iou`
        edge: share of a region's side within which a box's side counts as lying on its edge

    Raises:
        InputError: for an unknown method, or faulty values; the message names view, object and field

    Example:
        >>> plain = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5], "score": 0.9}]
        >>> mirrored = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.6], "score": 0.3}]
        >>> fused = fuse([plain, mirrored])
        >>> [round(side, 3) for side in fused.objects[0].box], round(fused.objects[0].score, 3)
        ([0.1, 0.1, 0.5, 0.525], 0.6)
        >>> fused.members, fused.counts["views"][0]["merged"]
        ((((0, 0), (1, 0)),), 1)
    """
    kind = geometry_of(geometry)
    threshold = _check(kind, method, iou, size, frame)
    if not kind.is_box:
        size = size or frame
    shares = _weights(weights, len(views), method)
    places = _regions(regions, len(views), frame)
    shown = None if regions is None else places

    # Reading
    by_label: dict[str, list[_Item]] = {}
    dropped, left_out = [0] * len(views), 0
    for view, objects in enumerate(views):
        for index, value in enumerate(objects):
            scored = _scored(value, kind, f"views[{view}][{index}]")
            if scored.score < min_score:
                left_out += 1
            elif kind.has_extent and (scored.box[2] <= scored.box[0] or scored.box[3] <= scored.box[1]):
                dropped[view] += 1
            else:
                cut = _cut(scored.box, places[view], frame, edge) if kind.has_extent else (False,) * 4
                item = _Item(view, index, scored, scored.score * shares[view], cut, places[view])
                by_label.setdefault(scored.desc, []).append(item)

    # Fusing, label by label
    found: list[tuple[ScoredObject, list[_Item]]] = []
    for items in by_label.values():
        fused = _Label(items, kind, threshold, size or (1.0, 1.0))
        if method == "wbf":
            found += fused.weighted(shares, shown)
        else:
            found += fused.suppressed(soft=method == "soft-nms", sigma=sigma)
    if method == "soft-nms":
        kept = [(scored, items) for scored, items in found if scored.score > min_score]
        left_out += len(found) - len(kept)
        found = kept
    found.sort(key=lambda pair: -pair[0].score)
    return Fusion(
        objects=tuple(scored for scored, _ in found),
        members=tuple(tuple((item.view, item.index) for item in items) for _, items in found),
        counts=_counts([items for _, items in found], [len(objects) for objects in views], dropped, left_out),
    )


def _check(
    kind: Geometry, method: str, iou: float | None, size: tuple[float, float] | None, frame: tuple[float, float]
) -> float:
    """Return the threshold."""
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, found {method!r:.80}")
    if not kind.is_box and tuple(frame) != (1.0, 1.0):
        raise InputError(f"frame: shapes of the geometry {kind.name} are in fractions of the image; leave it out")
    if not kind.is_box and size is None:
        raise InputError(
            f"size: shapes of the geometry {kind.name} are compared in pixels; pass the image's width and height"
        )
    if iou is not None and not 0 <= iou <= 1:
        raise InputError(f"iou: expected a number from 0 to 1, found {iou!r:.80}")
    if iou is not None:
        return iou
    if kind.is_box:
        return DEFAULT_IOU
    thresholds = similarity_of(kind).thresholds
    return DEFAULT_IOU if min(thresholds) <= DEFAULT_IOU else float(np.median(thresholds))


def _weights(weights: Sequence[float] | None, views: int, method: str) -> list[float]:
    if weights is None:
        return [1.0] * views
    values = finite_numbers(list(weights), views, "weights")
    if min(values, default=1) < 0 or (views and not sum(values)):
        raise InputError(f"weights: expected numbers of at least 0, not all of them 0, found {list(values)}")
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
        places.append((x1, y1, x2, y2))
    return places


def _scored(value: ScoredObject | Mapping[str, Any], kind: Geometry, where: str) -> ScoredObject:
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
        coordinates = finite_numbers(value.get("coordinates", ()), None, f"{where}.coordinates")
        score = finite_numbers([value.get("score")], 1, f"{where}.score")[0]
        scored = ScoredObject(desc, (x1, y1, x2, y2), score, (), (), coordinates)
    if not np.isfinite(scored.score) or scored.score < 0:
        raise InputError(f"{where}.score: expected a number of at least 0, found {scored.score!r}")
    if not kind.is_box and not kind.fits(len(scored.coordinates)):
        raise InputError(
            f"{where}.coordinates: expected {kind.counts} coordinates of the geometry {kind.name}, found "
            f"{len(scored.coordinates)}"
        )
    return scored


def _cut(box: Box, region: Box, frame: tuple[float, float], edge: float) -> tuple[bool, ...]:
    """Return whether each side of a box lies on an edge of its region that is not the image's own."""
    border = (0.0, 0.0, *frame)
    sides = []
    for i in range(4):
        length = region[i % 2 + 2] - region[i % 2]
        is_inner = abs(region[i] - border[i]) > 1e-6 * frame[i % 2]
        sides.append(is_inner and abs(box[i] - region[i]) <= edge * length)
    return tuple(sides)


class _Label:
    """The objects of one label."""

    def __init__(self, items: Sequence[_Item], kind: Geometry, threshold: float, size: tuple[float, float]) -> None:
        self._items, self._kind, self._threshold = items, kind, threshold
        self._boxes = Boxes(
            np.array([item.scored.box for item in items], np.float64),
            np.array([item.score for item in items], np.float64),
            np.array([item.cut for item in items], bool),
            np.array([item.region for item in items], np.float64),
        )
        self._shapes = None
        if not kind.is_box:
            shapes = [item.scored.coordinates for item in items]
            self._shapes = Shapes(kind, shapes, self._boxes.score_N, size)

    def _groups(self, join_only: bool) -> list[Group]:
        compare = self._shapes.compare if self._shapes else None
        return group_boxes(self._boxes, self._threshold, join_only=join_only, similarity=compare)

    def weighted(
        self, shares: Sequence[float], regions: Sequence[Box] | None
    ) -> Iterator[tuple[ScoredObject, list[_Item]]]:
        """Yield what weighted boxes fusion makes of them, and the members of each."""
        weight_V = np.array(shares, np.float64)
        for group in self._groups(join_only=False):
            members = [self._items[n] for n in group.members]
            could_V = np.ones(len(weight_V), bool) if regions is None else _shown(group.box_4, np.array(regions))
            could_V[[item.view for item in members]] = True
            total = self._boxes.score_N[list(group.members)].sum()
            score = total / len(members) * min(int(could_V.sum()), len(members)) / weight_V[could_V].sum()
            # Several boxes of a view with a large weight may give more than 1.
            bound = max(1.0, *(item.scored.score for item in members))
            yield self._object(group, min(float(score), bound)), members

    def suppressed(self, soft: bool, sigma: float | None) -> Iterator[tuple[ScoredObject, list[_Item]]]:
        """Yield what suppression keeps after boxes cut by an edge are joined, and the members of each."""
        groups = self._groups(join_only=True)
        best_K = np.array([self._boxes.score_N[group.members[0]] for group in groups])
        box_K4 = np.stack([group.box_4 for group in groups])
        box_K4[:, 2:] -= box_K4[:, :2]

        def overlaps(k: int, others: np.ndarray) -> np.ndarray:
            if self._shapes is None:
                return box_iou(box_K4[others], box_K4[k])
            return self._shapes.compare(groups[k].members, [groups[i].members for i in others])

        if soft:
            lowered_K = soft_nms(best_K, overlaps, self._threshold, sigma)
            rows: list[tuple[int, ...]] = [(k,) for k in range(len(groups))]
            kept = [(row, float(lowered_K[row[0]])) for row in rows]
        else:
            kept = [(row, float(best_K[row[0]])) for row in nms(best_K, overlaps, self._threshold)]
        for row, score in kept:
            yield self._object(groups[row[0]], score), [self._items[n] for k in row for n in groups[k].members]

    def _object(self, group: Group, score: float) -> ScoredObject:
        members = [self._items[n].scored for n in group.members]
        repairs = tuple(dict.fromkeys(repair for scored in members for repair in scored.repairs))
        if self._shapes is None:
            x1, y1, x2, y2 = group.box_4.tolist()
            return ScoredObject(members[0].desc, (x1, y1, x2, y2), score, repairs)
        cut = [n for n in group.members if self._boxes.cut_N4[n].any()]
        shape = self._shapes.mean(group.members, cut)
        outline = self._kind.outline(shape)
        return ScoredObject(members[0].desc, self._kind.to_box(shape), score, repairs, outline, shape)


def _shown(box_4: np.ndarray, region_V4: np.ndarray) -> np.ndarray:
    """Return whether each view shows at least half of a box; of a box without area, its centre."""
    area = float((box_4[2:] - box_4[:2]).prod())
    if not area:
        centre_2 = (box_4[:2] + box_4[2:]) / 2
        inside_V: np.ndarray = ((centre_2 >= region_V4[:, :2]) & (centre_2 <= region_V4[:, 2:])).all(axis=1)
        return inside_V
    ends_V2 = np.minimum(box_4[2:], region_V4[:, 2:])
    common_V = np.clip(ends_V2 - np.maximum(box_4[:2], region_V4[:, :2]), 0, None).prod(axis=1)
    shown_V: np.ndarray = common_V >= _SEEN * area
    return shown_V


def _counts(found: list[list[_Item]], boxes: list[int], dropped: list[int], left_out: int) -> dict[str, Any]:
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
    totals = {"boxes": sum(boxes), "objects": len(found), "cut": cut, "joined": joined, "left_out": left_out}
    return {"views": rows, **totals}
