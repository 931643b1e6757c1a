"""`ImageDetections`: the result of one image, its boxes and shapes in pixels with labels and scores."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import count
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageOps, ImageShow

from coord_codec import InputError, to_pixels
from coord_codec.files import atomic_write
from coord_codec.images import data_url
from coord_codec.pages import PALETTE, label_slots
from coord_detect.answers.finish import Finish
from coord_detect.answers.guesses import KEYS, KEYS_OF_OBJECT, OF_OBJECT, OF_RESULT, NamesTheCall, refuse_key
from coord_detect.answers.image_input import open_image
from coord_eval import AnswerSettings
from coord_eval.labelling import DetectedObject, coco_results, one_line, places_of

if TYPE_CHECKING:
    import pandas
    import supervision


_LEGIBLE = 320
"""Pixels of the longer side below which labels would cover most of the image."""


class FoundObject(NamesTheCall, DetectedObject):
    """One object of a result."""

    CALLS = OF_OBJECT

    def __getitem__(self, key: object) -> Any:
        raise TypeError(
            f"an object is no dictionary or list; use .{KEYS_OF_OBJECT.get(str(key), 'label, .box and .score')}"
        )


@dataclass(frozen=True)
class ImageDetections(NamesTheCall, Sequence[DetectedObject]):
    """The objects of one image, as a sequence; a notebook shows the image with its boxes.

    Attributes:
        objects: the objects in the order of the answer
        size: width and height of the upright image in pixels
        text: the answer
        finish_reason: `stop`, `length` if the answer was truncated, or `error` if there is none
        dropped: number of pieces of the answer that were dropped, by reason
        image: the image, or the path of its file, to draw on; None if it was not kept
        fused: what was merged, by view, and what was left out; empty if all boxes are those of the answer
        name: of the image, which files are named after
        numbers: the class id of each object: the place of its label in the detector's `names`
        error: why there is no answer; empty if there is one
    """

    CALLS = OF_RESULT

    objects: tuple[DetectedObject, ...]
    size: tuple[int, int]
    text: str
    finish_reason: str
    dropped: Mapping[str, int] = field(default_factory=dict)
    image: Image.Image | Path | None = field(default=None, repr=False, compare=False)
    fused: Mapping[str, Any] = field(default_factory=dict)
    name: str = "image"
    numbers: tuple[int, ...] = field(default=(), repr=False)
    error: str = ""

    @property
    def boxes_xyxy(self) -> np.ndarray:
        """Corners `[N, 4]` (float64) in pixels of the upright image: x1, y1, x2, y2."""
        return np.array([item.box for item in self.objects], np.float64).reshape(-1, 4)

    @property
    def labels(self) -> list[str]:
        """The label of each object."""
        return [item.label for item in self.objects]

    @property
    def scores(self) -> np.ndarray:
        """The score of each object `[N]` (float64)."""
        return np.array([item.score for item in self.objects], np.float64)

    @property
    def class_ids(self) -> np.ndarray:
        """The number of each object's label `[N]` (int64), the same in all images of a detector.

        Raises:
            ValueError: if no detector has numbered the labels
        """
        if len(self.numbers) != len(self.objects):
            raise ValueError("class ids are those of a detector, and this result is of none")
        return np.array(self.numbers, np.int64)

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, index: Any) -> Any:
        """Return an object by its place; of a slice, a mask or a list of places the result with these objects alone."""
        refuse_key(index)
        if isinstance(index, list | tuple | np.ndarray):
            chosen = np.arange(len(self))[np.asarray(index)].tolist()
        elif isinstance(index, slice):
            chosen = list(range(len(self))[index])
        else:
            return self.objects[index]
        numbers = tuple(self.numbers[place] for place in chosen) if self.numbers else ()
        return replace(self, objects=tuple(self.objects[place] for place in chosen), numbers=numbers)

    def __contains__(self, item: object) -> bool:
        if item in KEYS:
            refuse_key(item)
        return item in self.objects

    def __iter__(self) -> Iterator[DetectedObject]:
        return iter(self.objects)

    def drawn(self, longest_side: int | None = None, slots: Mapping[str, int] | None = None) -> Image.Image:
        """Return the image with its boxes or shapes, labels and scores.

        An image with a longer side of up to 160 pixels is enlarged by an integer factor, since labels would cover it.

        Args:
            longest_side: the longer side in pixels to which a larger image is reduced
            slots: place of each label from `coord_codec.pages.label_slots`; None chooses them for this image

        Raises:
            ValueError: if the image was not kept
        """
        if self.image is None:
            raise ValueError("the image was not kept: there is nothing to draw on")
        image = open_image(self.image)
        canvas = ImageOps.scale(image, max(_LEGIBLE // max(image.size), 1), Image.Resampling.NEAREST)
        if longest_side:
            canvas.thumbnail((longest_side, longest_side))
        scale = canvas.width / image.width
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

    def show(self) -> None:
        """Show the image with its boxes: in a notebook below the cell, elsewhere in the system's image viewer.

        Raises:
            InputError: if the image was not kept, or there is no viewer
        """
        if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
            import_module("IPython.display").display(self.drawn(800))
        elif not ImageShow.show(self.drawn()):
            raise InputError("show: there is no program that shows images here; .save(folder) writes a file")

    def save(self, folder: str | Path) -> Path:
        """Write the image with its boxes and the objects as JSON into a folder; returns the path of the image.

        Files of other content are kept: the new ones then get a number. A name that ends in that of an image format
        (`found.jpg`) is a file, and gets the image alone.

        Raises:
            FileExistsError: if that file exists
        """
        buffer = io.BytesIO()
        if (named := Path(folder)).suffix.lower() in Image.registered_extensions() and not named.is_dir():
            self.drawn().save(buffer, Image.registered_extensions()[named.suffix.lower()])
            named.parent.mkdir(parents=True, exist_ok=True)
            with named.open("xb") as written:
                written.write(buffer.getvalue())
            return named
        self.drawn().save(buffer, "JPEG", quality=92)
        contents = {".jpg": buffer.getvalue(), ".json": f"{self.to_json()}\n".encode()}
        name = PurePath(self.name).name
        first = places_of([name], Path(folder), ".jpg")[name].with_suffix("")
        for number in count(1):
            place = first if number == 1 else first.with_name(f"{first.name}-{number}")
            files = {place.with_name(place.name + suffix): content for suffix, content in contents.items()}
            if all(not path.exists() or path.read_bytes() == content for path, content in files.items()):
                break
        place.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            with atomic_write(path, "wb") as file:
                file.write(content)
        return next(iter(files))

    def data_url(self) -> str:
        """Return the image with its boxes as a `data:` URL of at most 800 pixels, for a page."""
        return data_url(self.drawn(800))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values: a record of predictions.jsonl with class ids, without probabilities."""
        width, height = self.size
        numbers = self.numbers or (None,) * len(self.objects)
        objects = [item.to_record() for item in self.objects]
        record = {
            "image": self.name,
            "width": width,
            "height": height,
            "text": self.text,
            "finish_reason": self.finish_reason,
            "objects": [row | {"class_id": number} for row, number in zip(objects, numbers, strict=True)],
            "dropped": dict(self.dropped),
        }
        return record | ({"error": self.error} if self.error else {})

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_coco(self, image_id: int | str = 1, categories: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
        """Return a COCO results list, with boxes as x, y, width, height in pixels.

        `file_name` and `category_name` say which image and category are meant, whatever their ids.

        Args:
            image_id: of the image
            categories: ids of the annotations' categories by name, which leave out other labels; None for class ids
                from 1 on, as COCO counts
        """
        numbers = (self.class_ids + 1).tolist() if categories is None else ()
        ids = dict(zip(self.labels, numbers, strict=True)) if categories is None else categories
        record = self.to_dict() | {"image_id": image_id}
        return coco_results([record], {one_line(name): n for name, n in ids.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each object: image, label, class_id, score, x1, y1, x2, y2.

        Raises:
            InputError: if pandas is not installed
        """
        table = needed("pandas").DataFrame(self.boxes_xyxy, columns=["x1", "y1", "x2", "y2"])
        facts = {"image": self.name, "label": self.labels, "class_id": self.class_ids, "score": self.scores}
        for place, (name, values) in enumerate(facts.items()):
            table.insert(place, name, values)
        return table

    def to_supervision(self) -> supervision.Detections:
        """Return `supervision.Detections` of the bounding boxes, with the labels in `data["class_name"]`.

        Raises:
            InputError: if supervision is not installed
        """
        return needed("supervision").Detections(
            xyxy=self.boxes_xyxy.astype(np.float32),
            confidence=self.scores.astype(np.float32),
            class_id=self.class_ids.astype(int),
            data={"class_name": np.array(self.labels, dtype=str)},
        )


def needed(module: str) -> Any:
    """Return a module of another library; an `InputError` if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"{module} is not installed: pip install {module}") from None


def read_objects(
    record: Mapping[str, Any],
    image: Image.Image | None = None,
    finish: Finish | None = None,
    reading: AnswerSettings = AnswerSettings(),
) -> ImageDetections:
    """Return the objects of a record of predictions.jsonl, as generated bins if it has no distributions.

    `finish` says how views are fused, scores calibrated, and boxes filtered by label and threshold; `reading`
    how texts become boxes.
    """
    finish = finish or Finish()
    scored, dropped, fused = finish.objects(record, reading)
    width, height = record["width"], record["height"]
    boxes = to_pixels(np.array([o.box for o in scored]).reshape(-1, 4), (width, height) * 2, 1).tolist()
    outlines = [to_pixels(np.array(o.points).reshape(-1, 2), (width, height), 1).tolist() for o in scored]
    geometry = reading.shape
    objects = [
        FoundObject(
            o.desc, tuple(box), o.score, geometry if points else "box", tuple(map(tuple, points)), o.coordinates
        )
        for o, box, points in zip(scored, boxes, outlines, strict=True)
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
