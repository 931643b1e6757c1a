"""`ImageDetections`: boxes and shapes of one image in pixels, with labels and scores."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw, ImageOps

from coord_codec import Geometry, InputError, geometry_of
from coord_codec.html import PALETTE, label_slots
from coord_trainer.answers.finish import Finish

if TYPE_CHECKING:
    import supervision


_LEGIBLE = 320
"""Pixels of the longer side below which labels would cover most of the image."""


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
        points = tuple((x, y) for x, y in record.get("points_xy", ()))
        return cls(
            record["desc"],
            tuple(record["bbox_xyxy"]),
            record["score"],
            record.get("geometry", "box"),
            points,
            tuple(record.get("coordinates", ())),
        )

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


@dataclass(frozen=True)
class ImageDetections(Sequence[DetectedObject]):
    """The objects of one image, as a sequence; a notebook shows the image with its boxes.

    Attributes:
        objects: the objects in the order of the answer
        size: width and height of the image in pixels
        text: the answer
        finish_reason: `stop`, or `length` if the answer was truncated
        dropped: number of pieces of the answer that were dropped, by reason
        image: the image if it is kept for drawing
        fused: what was merged, by view, and what was left out; empty if all boxes are those of the answer
    """

    objects: tuple[DetectedObject, ...]
    size: tuple[int, int]
    text: str
    finish_reason: str
    dropped: Mapping[str, int] = field(default_factory=dict)
    image: Image.Image | None = field(default=None, repr=False, compare=False)
    fused: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, index: Any) -> Any:
        return self.objects[index]

    def __iter__(self) -> Iterator[DetectedObject]:
        return iter(self.objects)

    def drawn(self, longest_side: int | None = None, slots: Mapping[str, int] | None = None) -> Image.Image:
        """Return the image with its boxes or shapes, labels and scores.

        An image with a longer side of up to 160 pixels is enlarged by an integer factor, since labels would cover it.

        Args:
            longest_side: the longer side in pixels to which a larger image is reduced
            slots: place of each label from `coord_codec.html.label_slots`; None chooses them for this image

        Raises:
            ValueError: if the image was not kept
        """
        if self.image is None:
            raise ValueError("the image was not kept: there is nothing to draw on")
        canvas = ImageOps.scale(self.image, max(_LEGIBLE // max(self.image.size), 1), Image.Resampling.NEAREST)
        if longest_side:
            canvas.thumbnail((longest_side, longest_side))
        scale = canvas.width / self.image.width
        line = max(1, round(max(canvas.size) / 320))
        draw = ImageDraw.Draw(canvas)
        places = label_slots(o.label for o in self) if slots is None else slots
        size = 6 + max(canvas.size) / 60  # legible on the page too, which shows reduced images
        for item in self:
            number, slot = divmod(places[item.label], len(PALETTE))
            colour = PALETTE[slot]
            x1, y1, x2, y2 = (value * scale for value in item.box)
            points = [(x * scale, y * scale) for x, y in item.placed]
            if not item.points:
                draw.rectangle((x1, y1, x2, y2), outline=colour, width=line)
            elif item.outlined:
                draw.line([*points, points[0]], fill=colour, width=line, joint="curve")
            else:
                for point in points:
                    draw.circle(point, 3 * line, fill=colour, outline="white", width=line)
            mark = f"{number + 1}: " if number else ""  # tells apart the labels of one colour
            caption = f"{mark}{one_line(item.label)} {item.score:.2f}"
            x1 = max(min(x1, canvas.width - draw.textlength(caption, font_size=size) - 2 * line), 0)  # inside the image
            left, top, right, bottom = draw.textbbox((x1, y1), caption, font_size=size)
            up = min(bottom - top + 2 * line, max(y1, 0))  # above the box if there is room, else inside it
            draw.rectangle((left, top - up, right + 2 * line, bottom - up + line), fill=colour)
            draw.text((x1 + line, y1 - up), caption, fill="white", font_size=size)
        return canvas

    def _repr_png_(self) -> bytes | None:
        if self.image is None:
            return None
        buffer = io.BytesIO()
        self.drawn(800).save(buffer, "PNG")
        return buffer.getvalue()

    def to_supervision(self, labels: Sequence[str] | None = None) -> supervision.Detections:
        """Return `supervision.Detections` of the bounding boxes, with the labels in `data["class_name"]`.

        Args:
            labels: the labels in the order of `class_id`; None for the sorted labels of this image, whose ids differ
                from image to image

        Raises:
            InputError: if supervision is not installed, or a label is not in `labels`
        """
        try:
            import supervision as sv
        except ImportError:
            raise InputError("supervision is not installed: pip install supervision") from None
        import numpy as np

        names = sorted({item.label for item in self}) if labels is None else list(labels)
        if missing := next((item.label for item in self if item.label not in names), None):
            raise InputError(f"labels: expected all labels of the image among them, found no {missing!r}")
        return sv.Detections(
            xyxy=np.array([item.box for item in self], dtype=np.float32).reshape(-1, 4),
            confidence=np.array([item.score for item in self], dtype=np.float32),
            class_id=np.array([names.index(item.label) for item in self], dtype=int),
            data={"class_name": np.array([item.label for item in self], dtype=str)},
        )


def one_line(label: str) -> str:
    """Return a label without line breaks and control characters, which no file format allows."""
    return " ".join("".join(c if c.isprintable() else " " for c in label).split())


def read_objects(
    record: Mapping[str, Any],
    image: Image.Image | None = None,
    labels: Collection[str] = (),
    finish: Finish | None = None,
    **options: Any,
) -> ImageDetections:
    """Return the objects of one record of predictions.jsonl.

    Args:
        record: a record with `text`, `width` and `height`; without distributions its boxes are the generated bins
        image: the image, kept for drawing
        labels: the only labels allowed, if any; objects with other labels are dropped as `other_label`
        finish: how views are fused, and scores calibrated and compared with a threshold; None for none of it
        options: arguments of `coord_eval.scored_objects`
    """
    finish = finish or Finish()
    scored, dropped, fused = finish.objects(record, labels, **options)
    width, height = record["width"], record["height"]
    geometry = options.get("geometry", "box")
    objects = [
        DetectedObject(
            o.desc,
            (o.box[0] * width, o.box[1] * height, o.box[2] * width, o.box[3] * height),
            o.score,
            geometry if o.points else "box",
            tuple((x * width, y * height) for x, y in o.points),
            o.coordinates,
        )
        for o in scored
    ]
    return ImageDetections(
        tuple(objects),
        (width, height),
        record.get("text") or "",
        record["finish_reason"],
        dropped,
        image,
        fused if finish.changes else {},
    )
