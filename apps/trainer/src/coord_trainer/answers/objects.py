"""`ImageDetections`: boxes and shapes of one image in pixels, with labels and scores."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw, ImageOps

from coord_codec import InputError
from coord_codec.html import PALETTE, label_slots
from coord_eval.labelling import DetectedObject, one_line
from coord_trainer.answers.finish import Finish

if TYPE_CHECKING:
    import supervision


_LEGIBLE = 320
"""Pixels of the longer side below which labels would cover most of the image."""


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
            draw.rectangle((left, top - up - line, right + 2 * line, bottom - up + line), fill=colour)
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
