"""One `{...}` record of an answer in JSON: the meaning of its keys, and its conversion to objects or a drop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from coord_codec import GEOMETRIES
from coord_eval.parse.answer import AnswerBuilder, Geometry, shape_order
from coord_eval.parse.formats import TextFormat

POLYGON_KEYS = frozenset({"poly", "polygon", "polygon_2d"})
LABEL_KEYS = frozenset(
    {
        *("label", "desc", "description", "name", "category", "class", "ref", "text_content", "type", "tag"),
        *("class_name", "category_name", "label_name", "object", "object_name", "phrase", "sub_label"),
        *("标签", "类别", "名称", "物体", "类型", "对象"),
    }
)
SCORE_KEYS = frozenset({"score", "confidence", "conf", "probability", "置信度"})
SIDES = {
    **dict.fromkeys(("x1", "xmin", "x_min", "left"), "x1"),
    **dict.fromkeys(("y1", "ymin", "y_min", "top"), "y1"),
    **dict.fromkeys(("x2", "xmax", "x_max", "right"), "x2"),
    **dict.fromkeys(("y2", "ymax", "y_max", "bottom"), "y2"),
    **{"x": "x", "y": "y", "width": "w", "w": "w", "height": "h", "h": "h"},
}
"""Keys of a single side of a box."""
LISTS = frozenset(
    {
        *("objects", "detections", "results", "annotations", "items", "predictions", "instances", "points", "data"),
        *("output", "answer", "image", "labels", "bounding_boxes", "detected_objects"),
    }
)
"""Keys of lists of objects, which are not labels."""

Value = tuple[float, float | None, int | None]
"""A coordinate as written, its value in [0, 1] and the index of its token, both None for plain numbers."""
Group = list[Value]
"""The coordinates of one shape."""


MAX_NUMBERS = 100_000
"""Maximum number of numbers kept for one record; no shape has more."""


@dataclass(slots=True)
class Record:
    """One `{...}` being parsed."""

    start: int
    end: int = -1
    key: str | None = None
    pending: str | None = None
    label: str | None = None
    labels: list[str] = field(default_factory=list)
    name: str = ""
    score: float | None = None
    geometry: Geometry | None = None
    format: TextFormat | None = None
    depth: int = 0
    done: bool = False
    groups: list[Group] = field(default_factory=list)
    sides: dict[str, float] = field(default_factory=dict)
    named: dict[str, list[Group]] = field(default_factory=dict)
    count: int = 0
    invalid: bool = False
    repairs: tuple[str, ...] = ()
    has_children: bool = False
    other_numbers: int = 0
    reads_geometry: bool = False

    def repair(self, name: str) -> None:
        """Add the name of a repair, if it is not there yet."""
        if name not in self.repairs:
            self.repairs = (*self.repairs, name)

    def add(self, value: Value) -> None:
        """Add a coordinate to the current shape."""
        if not self.groups:
            self.groups.append([])
        self.count += 1
        if self.count <= MAX_NUMBERS:
            self.groups[-1].append(value)

    def emit(self, builder: AnswerBuilder, parent: Record | None, end: int, partial: bool) -> None:
        """Turn a closed or cut-off record into objects or a drop, or into the box of its parent."""
        span = (self.start, end)
        if self._assemble_sides(parent, partial):
            return
        groups = [group for group in self.groups if group]
        if self.geometry is None or not (groups or self.invalid):
            if self._add_by_label(builder, span, partial) or (self.geometry is None and self.has_children):
                return
            if partial:
                builder.drop("truncated", *span)
            elif self.geometry is not None or self.label is not None:
                builder.drop("no_coordinates", *span)
            elif self.other_numbers >= 4:
                builder.drop("unrecognised", *span)
            return
        builder.start_count += 1
        flat = [value for group in groups for value in group]
        tokens = sum(value[1] is not None for value in flat)
        kind = GEOMETRIES[self.geometry]
        is_whole = tokens and not self.invalid and kind.fixed and len(flat) == kind.least
        if partial and not self.done and not is_whole:
            builder.drop("truncated", *span)
        elif self.count > MAX_NUMBERS:
            builder.drop("wrong_arity", *span)
        elif self.invalid or tokens not in (0, len(flat)):
            builder.drop("invalid_coordinate", *span)
        else:
            label = self.label if self.label is not None else self.name
            shapes = _split(self.geometry, groups)
            labels = self.labels if len(self.labels) == len(shapes) else [label] * len(shapes)
            for name, group in zip(labels, shapes, strict=True):
                self._add(builder, name, self.geometry, group, span, partial)

    def _assemble_sides(self, parent: Record | None, partial: bool) -> bool:
        """Build the geometry from sides with keys of their own; return True if it becomes that of the parent."""
        sides = self.sides
        if self.geometry is not None or (partial and len(sides) < 4):
            return False
        if sides.keys() >= {"x1", "y1", "x2", "y2"}:
            values = [sides[key] for key in ("x1", "y1", "x2", "y2")]
        elif sides.keys() >= {"x", "y", "w", "h"}:
            values = [sides["x"], sides["y"], sides["x"] + sides["w"], sides["y"] + sides["h"]]
        elif sides.keys() >= {"x1", "y1", "w", "h"}:
            values = [sides["x1"], sides["y1"], sides["x1"] + sides["w"], sides["y1"] + sides["h"]]
        elif sides.keys() >= {"x", "y"}:
            values = [sides["x"], sides["y"]]
        else:
            return False
        group: Group = [(value, None, None) for value in values]
        if self.label is None and parent and parent.reads_geometry:
            for value in group:
                parent.add(value)
            parent.groups.append([])
            return True
        self.geometry, self.groups, self.done = ("box" if len(values) == 4 else "point"), [group], True
        return False

    def _add_by_label(self, builder: AnswerBuilder, span: tuple[int, int], partial: bool) -> bool:
        """Add the boxes of a dictionary by label, `{"cat": [[1, 2, 3, 4]]}`; return False if it is not one."""
        groups = [
            (key, group)
            for key, groups in self.named.items()
            if key not in LABEL_KEYS | SCORE_KEYS
            for group in groups
            if group and all(math.isfinite(value[0]) for value in group)
        ]
        boxes = [(key, group) for key, group in groups if len(group) == 4]
        if self.geometry is not None or partial or not boxes or (self.label is not None and len(boxes) > 1):
            return False
        for position, (key, group) in enumerate(boxes):
            builder.start_count += position == 0 or key != boxes[position - 1][0]
            label = self.label if self.label is not None else "" if key in LISTS else key
            self._add(builder, label, "box", group, span, partial)
        for _ in range(len(groups) - len(boxes)):
            builder.drop("wrong_arity", *span)
        return True

    def _add(
        self, builder: AnswerBuilder, label: str, geometry: Geometry, group: Group, span: tuple[int, int], partial: bool
    ) -> None:
        numbers = [value[0] for value in group]
        unit = [value[1] for value in group if value[1] is not None]
        row = self.format
        details: dict[str, Any] = {
            "geometry": geometry,
            "order": row.order if row else shape_order(geometry),
            "start_index": builder.start_count - 1,
            "repairs": self.repairs,
            "partial": partial,
            "score": self.score,
        }
        if unit:
            builder.add_shape(label, numbers, unit, span, first_coord_index=group[0][2], **details)
        else:
            builder.add_numbers(label, numbers, span, own_scale=row.scale if row else None, **details)


def _split(geometry: Geometry, groups: list[Group]) -> list[Group]:
    """Return the numbers of each shape: a list of several shapes of a fixed length is split."""
    kind = GEOMETRIES[geometry]
    if kind.fixed and len(groups) > 1 and all(len(group) == kind.least for group in groups):
        return groups
    return [[value for group in groups for value in group]]
