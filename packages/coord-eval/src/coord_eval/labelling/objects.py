"""One object of an image in pixels, as the records of predictions hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coord_codec import Geometry, geometry_of


@dataclass(frozen=True)
class DetectedObject:
    """One object.

    Attributes:
        label: the label as generated
        box: `(x1, y1, x2, y2)` in pixels of the upright image; of another shape its bounding box
        score: the score in (0, 1]
        geometry: the kind of shape, a name of `coord_codec.GEOMETRIES`
        points: `(x, y)` in pixels of each point that draws a shape (`Geometry.outline`), `(0, 0)` for an unplaced
            keypoint; empty for a box
        coordinates: the numbers of a shape in [0, 1], in the order of its geometry; empty for a box
    """

    label: str
    box: tuple[float, float, float, float]
    score: float
    geometry: str = "box"
    points: tuple[tuple[float, float], ...] = ()
    coordinates: tuple[float, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """Return the record written to predictions.jsonl."""
        record: dict[str, Any] = {"desc": self.label, "bbox_xyxy": list(self.box), "score": self.score}
        if self.points:
            record |= {"geometry": self.geometry, "points_xy": [list(point) for point in self.points]}
        if not self.kind.has_points:  # otherwise the points say it
            record["coordinates"] = list(self.coordinates)
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> DetectedObject:
        """Return the object described by a record of `to_record`."""
        geometry, coordinates = record.get("geometry", "box"), tuple(record.get("coordinates", ()))
        points = tuple((x, y) for x, y in record.get("points_xy", ()))
        return cls(record["desc"], tuple(record["bbox_xyxy"]), record["score"], geometry, points, coordinates)

    @property
    def kind(self) -> Geometry:
        """The geometry of the object."""
        return geometry_of(self.geometry)

    @property
    def outlined(self) -> bool:
        """Whether the points are the vertices of a closed outline."""
        return bool(self.points) and self.kind.closed

    @property
    def placed(self) -> Sequence[tuple[float, float]]:
        """The points without unplaced keypoints."""
        return self.kind.placed(self.points)


def one_line(label: str) -> str:
    """Return a label without line breaks and control characters, which no file format allows."""
    return " ".join("".join(c if c.isprintable() else " " for c in label).split())
