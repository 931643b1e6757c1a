"""An even part of a large file, as it stands there, for the doctor of data to look at before training.

What is kept thins itself out while the file is read, since its length is not known: whenever there is too much, every
second record goes, and from then on every second one that comes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from coord_codec.coco.reader import numbered

PART = 128
"""Images that are kept: faults of all boxes show from 30 on."""

_ANNOTATIONS = 8_192
_MIXING = 0x9E3779B1  # ids that count up are drawn evenly


class LinesPart:
    """Lines of an instance file, evenly spaced."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, bytes]] = []
        self._step = 1

    def see(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Take in numbered lines."""
        self._kept += [line for line in lines if line[0] % self._step == 0]
        while len(self._kept) > 2 * PART:
            self._step *= 2
            self._kept = [line for line in self._kept if line[0] % self._step == 0]

    def text(self) -> str:
        """Return an instance file of them."""
        return "".join(line.decode(errors="replace").rstrip("\r\n") + "\n" for _, line in self._kept)


class CocoPart:
    """Images of a COCO file, drawn by their ids, with their annotations; in whatever order the lists stand."""

    def __init__(self) -> None:
        self._step = 1
        self._rows: dict[str, list[Any]] = {"images": [], "annotations": [], "categories": []}

    def see(self, key: str, row: Any) -> None:
        """Take in a row of a list."""
        rows = self._rows.get(key)
        if rows is None or not (key == "categories" or self._is_drawn(key, row)):
            return
        rows.append(row)
        while key != "categories" and len(self._rows[key]) > _ANNOTATIONS:
            self._step *= 2
            for name in ("images", "annotations"):
                self._rows[name] = [row for row in self._rows[name] if self._is_drawn(name, row)]

    def _is_drawn(self, key: str, row: Any) -> bool:
        number = _image_of(row, "id" if key == "images" else "image_id") if isinstance(row, dict) else None
        mixed = number * _MIXING >> 12 if type(number) is int else zlib.crc32(str(number).encode())
        return mixed % self._step == 0

    def text(self) -> str:
        """Return a COCO file of them; annotations of no image that is drawn stay out."""
        images = self._rows["images"]
        images = [images[i * len(images) // PART] for i in range(PART)] if len(images) > PART else images
        known = {_image_of(image, "id") for image in images if isinstance(image, dict)}
        rows = self._rows["annotations"]
        own = [row for row in rows if isinstance(row, dict) and _image_of(row, "image_id") in known]
        return json.dumps({**self._rows, "images": images, "annotations": own})


def _image_of(row: dict[str, Any], key: str) -> int | str:
    """Return the id of an image, the same for a number and its text."""
    value = row.get(key)
    return numbered(value if isinstance(value, int | str) else str(value))
