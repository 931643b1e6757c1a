"""Fuses the detections of a set of images: near-duplicates within one set of answers, or an ensemble of several sets.

Shapes: D detections of all runs, I images, R runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from coord_codec import Geometry, InputError
from coord_codec.geometry.base import flat
from coord_eval.detections import Detections
from coord_eval.fusion.fuse import DEFAULT_IOU, METHODS, Method, fuse
from coord_eval.objects import ScoredObject

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class FusionRule:
    """How boxes are fused, as `--fuse` states it.

    Attributes:
        method: `wbf`, `nms` or `soft-nms`
        iou: IoU above which two boxes are one object, None for the default of the geometry

    Example:
        >>> FusionRule.parse("nms:0.6"), str(FusionRule.parse("wbf"))
        (FusionRule(method='nms', iou=0.6), 'wbf:0.55')
    """

    method: Method = "wbf"
    iou: float | None = None

    @classmethod
    def parse(cls, text: str) -> FusionRule:
        """Return the rule that a text `METHOD[:IOU]` states.

        Raises:
            InputError: for another text
        """
        method, colon, number = text.partition(":")
        try:
            iou = float(number) if colon else None
        except ValueError:
            iou = -1.0
        if method not in METHODS or (iou is not None and not 0 <= iou <= 1):
            raise InputError(
                f"fuse: expected {', '.join(METHODS)}, with an IoU from 0 to 1 after a colon, such as nms:0.5, found "
                f"{text!r:.80}"
            )
        return cls(cast(Method, method), iou)

    def __str__(self) -> str:
        return f"{self.method}:{DEFAULT_IOU if self.iou is None else self.iou:g}"


def fuse_detections(
    runs: Sequence[Detections],
    rule: FusionRule,
    kind: Geometry,
    sizes_I2: np.ndarray,
    weights: Sequence[float] | None = None,
) -> tuple[Detections, dict[str, Any]]:
    """Fuse the detections of several runs for the same images and categories.

    Args:
        runs: the detections of each run; of a single one, near-duplicates are fused
        rule: method and threshold
        kind: geometry of the objects
        sizes_I2: width and height of the images in pixels
        weights: a weight for each run, None for equal ones

    Returns:
        The fused detections, those of an image in the order of the answers, and the counts of `Fusion` over all images.

    Raises:
        InputError: for shapes whose numbers are not the x and y of points
    """
    if not kind.has_points and not kind.is_box:
        raise InputError(f"fuse: geometry {kind.name}: expected boxes or points, since angles and lengths have no mean")
    by_image = [_by_image(run) for run in runs]
    rows: list[tuple[Any, ...]] = []
    shapes: list[Points] = []
    counts: dict[str, Any] = {"boxes": 0, "objects": 0}
    for image in sorted({image for places in by_image for image in places}):
        size = (1.0, 1.0) if kind.is_box else (float(sizes_I2[image][0]), float(sizes_I2[image][1]))
        places = [places_of.get(image, []) for places_of in by_image]
        views = [_objects(run, rows_of, kind, size) for run, rows_of in zip(runs, places, strict=True)]
        # What has no shape cannot be compared, so it stays as it is.
        shapeless = [[not kind.is_box and not scored.coordinates for scored in view] for view in views]
        places, alone = _split(places, shapeless)
        views, single = _split(views, shapeless)
        fused = fuse(
            views, method=rule.method, iou=rule.iou, weights=weights, geometry=kind, size=None if kind.is_box else size
        )
        _add(counts, fused.counts)
        found = [
            (run, d, scored) for run in range(len(runs)) for d, scored in zip(alone[run], single[run], strict=True)
        ]
        for scored, members in zip(fused.objects, fused.members, strict=True):
            run, index = min(members)
            found.append((run, places[run][index], scored))
        found.sort(key=lambda item: (item[0], int(runs[item[0]].rank_D[item[1]])))
        for run, d, scored in found:
            x1, y1, x2, y2 = scored.box
            box = (x1 * size[0], y1 * size[1], (x2 - x1) * size[0], (y2 - y1) * size[1])
            rows.append((image, int(scored.desc), *box, scored.score, runs[run].rank_D[d]))
            shapes.append(tuple((x * size[0], y * size[1]) for x, y in scored.points))
    table = np.array(rows, np.float64).reshape(-1, 8)
    image_D, category_D, rank_D = table.T[[0, 1, 7]].astype(np.int64)
    fused_shapes = tuple(shapes) if any(shapes) else ()
    first = replace(runs[0], image_D=image_D, category_D=category_D, rank_D=rank_D, shapes=fused_shapes)
    return replace(first, boxes_D4=table[:, 2:6], scores_D=table[:, 6]), counts


def _by_image(run: Detections) -> dict[int, list[int]]:
    """Return the indices of the detections of each image, in the order of the answers."""
    rows: dict[int, list[int]] = {}
    for d in np.lexsort((run.rank_D, run.image_D)).tolist():
        rows.setdefault(int(run.image_D[d]), []).append(d)
    return rows


def _split(rows: Sequence[Sequence[Any]], apart: Sequence[Sequence[bool]]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return of each row the items that stay, and those that are set apart."""
    pairs = [list(zip(row, marks, strict=True)) for row, marks in zip(rows, apart, strict=True)]
    return [[item for item, mark in row if not mark] for row in pairs], [
        [item for item, mark in row if mark] for row in pairs
    ]


def _objects(run: Detections, rows: Sequence[int], kind: Geometry, size: tuple[float, float]) -> list[ScoredObject]:
    """Return detections as objects in fractions of `size`, with their category as label."""
    width, height = size
    objects = []
    columns = (run.boxes_D4[rows].tolist(), run.scores_D[rows].tolist(), run.category_D[rows].tolist())
    for d, (x, y, w, h), score, category in zip(rows, *columns, strict=True):
        box = (x / width, y / height, (x + w) / width, (y + h) / height)
        points = tuple((x / width, y / height) for x, y in run.shapes[d]) if run.shapes and not kind.is_box else ()
        objects.append(ScoredObject(str(category), box, score, (), points, flat(points)))
    return objects


def _add(total: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if key == "views":
            rows = total.setdefault("views", [{} for _ in value])
            for row, added in zip(rows, value, strict=True):
                _add(row, added)
        else:
            total[key] = total.get(key, 0) + value


def fusion_note(rule: FusionRule, counts: dict[str, Any]) -> str:
    """Return what was fused in one line."""
    dropped = sum(row["dropped"] for row in counts.get("views", ()))
    parts = [f"fused by {rule}: {counts['boxes']} boxes became {counts['objects']}"]
    if dropped:
        parts.append(f"{dropped} without area were dropped")
    if counts.get("left_out"):
        parts.append(f"{counts['left_out']} came down to a score of 0")
    return ", ".join(parts)
