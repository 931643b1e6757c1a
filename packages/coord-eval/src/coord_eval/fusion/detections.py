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
from coord_eval.boxes.detections import Detections
from coord_eval.fusion.fuse import DEFAULT_IOU, METHODS, LabelledBox, Method, fuse_boxes


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
    by_part = [_by_part(run) for run in runs]
    corners = [LAYOUTS["xywh"](run.boxes_D4) for run in runs]
    chosen: list[tuple[int, int]] = []  # run and detection whose place in the answer a fused box takes
    boxes: list[tuple[float, ...]] = []
    counts: dict[str, Any] = {"boxes": 0, "objects": 0, "views": [{} for _ in runs]}
    for image in sorted({image for run in runs for image in run.image_D.tolist()}):
        # Each part of the image that a run was asked about is a view.
        parts = [(r, part) for r, run in enumerate(runs) for part in range(len(run.asked.get(image, (None,))))]
        places = [by_part[r].get((image, part), []) for r, part in parts]
        regions = [_region(runs[r], image, part) for r, part in parts]
        fused, added = fuse_boxes(
            [_views(runs[r], corners[r], own) for (r, _), own in zip(parts, places, strict=True)],
            method=rule.method,
            iou=rule.iou,
            weights=None if weights is None else [weights[r] for r, _ in parts],
            regions=regions if any(regions) else None,
            frame=(float(sizes_I2[image][0]), float(sizes_I2[image][1])),
        )
        for (r, _), row in zip(parts, added.pop("views"), strict=True):
            _add(counts["views"][r], row)
        _add(counts, added)
        found = []
        for item in fused:
            view, index = min(item.members)
            r, d = parts[view][0], places[view][index]
            found.append((r, int(runs[r].rank_D[d]), d, item))
        for r, _, d, item in sorted(found, key=lambda row: row[:2]):
            chosen.append((r, d))
            boxes.append((*item.box, item.score))
    table = np.array(boxes, np.float64).reshape(-1, 5)
    table[:, 2:4] -= table[:, :2]

    def column(name: str) -> np.ndarray:
        return np.array([getattr(runs[r], name)[d] for r, d in chosen], np.int64)

    return Detections(
        column("image_D"), column("category_D"), table[:, :4], table[:, 4], column("rank_D"), runs[0].unknown
    ), counts


def _by_part(run: Detections) -> dict[tuple[int, int], list[int]]:
    """Return the indices of the detections by image and part of it, in the order of the answers."""
    rows: dict[tuple[int, int], list[int]] = {}
    part_D = np.zeros(len(run), np.int64) if run.part_D is None else run.part_D
    images, parts = run.image_D.tolist(), part_D.tolist()
    for d in np.lexsort((run.rank_D, run.image_D)).tolist():
        rows.setdefault((images[d], parts[d]), []).append(d)
    return rows


def _region(run: Detections, image: int, part: int) -> tuple[float, ...] | None:
    """Return the part of an image that a view shows, `x1, y1, x2, y2` in pixels, None for all of it."""
    tile = run.asked[image][part] if image in run.asked else None
    if tile is None:
        return None
    x, y, width, height = tile
    return x, y, x + width, y + height


def _views(run: Detections, corners_D4: np.ndarray, rows: Sequence[int]) -> list[LabelledBox]:
    columns = (run.category_D[rows].tolist(), corners_D4[rows].tolist(), run.scores_D[rows].tolist())
    return [LabelledBox(label, tuple(box), score) for label, box, score in zip(*columns, strict=True)]


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
        parts.append(counted(dropped, "without area was dropped", "without area were dropped"))
    return ", ".join(parts)
