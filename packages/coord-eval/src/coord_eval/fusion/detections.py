"""Fuses the detections of a set of images: near-duplicates within one set of answers, or an ensemble of several sets.

Shapes: D detections of all runs, I images, R runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from coord_codec import Geometry, InputError
from coord_codec.counts import counted
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
    by_part = [_by_part(run) for run in runs]
    rows: list[tuple[Any, ...]] = []
    shapes: list[Points] = []
    counts: dict[str, Any] = {"boxes": 0, "objects": 0, "views": [{} for _ in runs]}
    for image in sorted({image for run in runs for image in run.image_D.tolist()}):
        size = (float(sizes_I2[image][0]), float(sizes_I2[image][1]))
        unit = (1.0, 1.0) if kind.is_box else size
        # Each part of the image that a run was asked about is a view.
        parts = [(r, part) for r, run in enumerate(runs) for part in range(len(run.asked.get(image, (None,))))]
        places = [by_part[r].get((image, part), []) for r, part in parts]
        regions = [_region(runs[r], image, part, unit) for r, part in parts]
        views = [_objects(runs[r], own, kind, unit) for (r, _), own in zip(parts, places, strict=True)]
        # What has no shape cannot be compared, so it stays as it is.
        shapeless = [[not kind.is_box and not scored.coordinates for scored in view] for view in views]
        places, alone = _split(places, shapeless)
        views, single = _split(views, shapeless)
        fused = fuse(
            views,
            method=rule.method,
            iou=rule.iou,
            weights=None if weights is None else [weights[r] for r, _ in parts],
            regions=regions if any(regions) else None,
            frame=size if kind.is_box and any(regions) else (1.0, 1.0),
            geometry=kind,
            size=None if kind.is_box else size,
        )
        by_run = [counts["views"][r] for r, _ in parts]
        for row, added in zip(by_run, fused.counts["views"], strict=True):
            _add(row, added)
        _add(counts, {key: value for key, value in fused.counts.items() if key != "views"})
        found = [
            (parts[v][0], d, scored) for v in range(len(parts)) for d, scored in zip(alone[v], single[v], strict=True)
        ]
        for scored, members in zip(fused.objects, fused.members, strict=True):
            view, index = min(members)
            found.append((parts[view][0], places[view][index], scored))
        found.sort(key=lambda item: (item[0], int(runs[item[0]].rank_D[item[1]])))
        for r, d, scored in found:
            x1, y1, x2, y2 = scored.box
            box = (x1 * unit[0], y1 * unit[1], (x2 - x1) * unit[0], (y2 - y1) * unit[1])
            rows.append((image, int(scored.desc), *box, scored.score, runs[r].rank_D[d]))
            shapes.append(tuple((x * unit[0], y * unit[1]) for x, y in scored.points))
    table = np.array(rows, np.float64).reshape(-1, 8)
    image_D, category_D, rank_D = table.T[[0, 1, 7]].astype(np.int64)
    return Detections(
        image_D, category_D, table[:, 2:6], table[:, 6], rank_D, runs[0].unknown, tuple(shapes) if any(shapes) else ()
    ), counts


def _by_part(run: Detections) -> dict[tuple[int, int], list[int]]:
    """Return the indices of the detections by image and part of it, in the order of the answers."""
    rows: dict[tuple[int, int], list[int]] = {}
    part_D = np.zeros(len(run), np.int64) if run.part_D is None else run.part_D
    images, parts = run.image_D.tolist(), part_D.tolist()
    for d in np.lexsort((run.rank_D, run.image_D)).tolist():
        rows.setdefault((images[d], parts[d]), []).append(d)
    return rows


def _region(run: Detections, image: int, part: int, unit: tuple[float, float]) -> tuple[float, ...] | None:
    """Return the part of an image that a view shows, `x1, y1, x2, y2` in multiples of `unit`, None for all of it."""
    tile = run.asked[image][part] if image in run.asked else None
    if tile is None:
        return None
    x, y, width, height = tile
    return x / unit[0], y / unit[1], (x + width) / unit[0], (y + height) / unit[1]


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


def _add(total: dict[str, Any], more: dict[str, int]) -> None:
    for key, value in more.items():
        total[key] = total.get(key, 0) + value


def fusion_note(rule: FusionRule, counts: dict[str, Any]) -> str:
    """Return what was fused in one line."""
    dropped = sum(row.get("dropped", 0) for row in counts["views"])
    parts = [f"fused by {rule}: {counted(counts['boxes'], 'box', 'boxes')} became {counts['objects']:,}"]
    if counts.get("cut"):
        parts.append(f"{counts['joined']} of {counts['cut']} that the edge of a tile cuts were joined")
    if dropped:
        parts.append(f"{dropped} without area were dropped")
    if counts.get("left_out"):
        parts.append(f"{counts['left_out']} came down to a score of 0")
    return ", ".join(parts)
