"""`fuse`: the objects of several views of one image, or several models' answers for it, as one set of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.box_table import BoxTable
from coord_codec.files import finite_numbers
from coord_eval.fusion.columns import VIEW, fuse_boxes, views_of
from coord_eval.intake.objects import ScoredObject
from coord_eval.settings import DEFAULT_IOU, FusionRule, Method


@dataclass(frozen=True)
class Fusion:
    """The objects of all views together.

    Attributes:
        objects: the fused objects, by descending score; what is not fused of the member with the highest score
        members: for each object the places (view, index) of what became it, the highest score first
        counts: in total `boxes`, `objects`, `cut` (boxes that an inner edge of a region has cut) and `joined` (those of
            them that are part of an object with others); and `views`, for each view its `boxes` and of these `merged`
            with other views', `duplicate` of another of the same view, found by it `alone`, and `dropped`, since they
            have no area
    """

    objects: tuple[ScoredObject, ...]
    members: tuple[tuple[tuple[int, int], ...], ...]
    counts: dict[str, Any]


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
    rule = FusionRule(method, DEFAULT_IOU if iou is None else iou)
    if min(finite_numbers(list(frame), 2, "frame")) <= 0:
        raise InputError(f"frame: expected a width and a height above 0, found {frame!r:.80}")
    places = [(v, i) for v, given in enumerate(views) for i in range(len(given))]
    objects = [_scored(views[v][i], f"views[{v}][{i}]") for v, i in places]
    number: dict[str, int] = {}
    label_N = [number.setdefault(item.desc, len(number)) for item in objects]
    boxes_N4, score_N = [item.box for item in objects], [item.score for item in objects]
    of_image: dict[str, Any] = {"image_ids": (0,), "labels": tuple(number), "sizes_I2": frame}
    table = BoxTable.of(np.zeros(len(objects)), label_N, boxes_N4, score_N=score_N, **of_image)
    views_V = np.array([*views_of(0, regions, range(len(views)), frame)], VIEW)
    fused, counts = fuse_boxes(table, np.array([v for v, _ in places], int), views_V, len(views), weights, rule)
    found = []
    fused.sort(key=lambda item: -item.score)
    for item in fused:
        members = [objects[n] for n in item.members[: item.averaged]]
        repairs = tuple(dict.fromkeys(repair for scored in members for repair in scored.repairs))
        x1, y1, x2, y2 = item.box_4.tolist()
        found.append(members[0]._replace(box=(x1, y1, x2, y2), score=item.score, repairs=repairs, scale=None))
    return Fusion(tuple(found), tuple(tuple(places[n] for n in item.members) for item in fused), counts)


def _scored(value: ScoredObject | Mapping[str, Any], where: str) -> ScoredObject:
    if isinstance(value, Mapping):
        desc = value.get("desc", value.get("label"))
        if not isinstance(desc, str):
            raise InputError(f"{where}.desc: expected the label as text, found {desc!r:.80}")
        box = next((value[key] for key in ("bbox_xyxy", "bbox", "box") if key in value), None)
        x1, y1, x2, y2 = numbers = finite_numbers(box, 4, f"{where}.bbox_xyxy")
        score = finite_numbers([value.get("score")], 1, f"{where}.score")[0]
        shape = value.get("coordinates", ())
        value = ScoredObject(desc, (x1, y1, x2, y2), numbers, (0, 0), score=score, coordinates=shape)
    if not isinstance(value, ScoredObject):
        raise InputError(f"{where}: expected a ScoredObject or a record, found {type(value).__name__}")
    if not np.isfinite(value.score) or value.score < 0:
        raise InputError(f"{where}.score: expected a number of at least 0, found {value.score!r}")
    if value.coordinates:
        raise InputError(f"{where}.coordinates: expected a box, found another shape; only boxes are fused")
    return value
