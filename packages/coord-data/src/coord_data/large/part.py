"""Keeps an evenly drawn subset of a large file's unchanged records, which is inspected before training.

The subset is thinned out while the file is read, since its length is not known: whenever it grows too large, every
second record is dropped, and from then on every second record is skipped.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from coord_codec.coco.reader import numbered

PART = 128
"""Number of images to keep; faults that affect all boxes can be detected with 30 or more."""

_ANNOTATIONS = 8_192
_MIXING = 0x9E3779B1  # draws consecutive ids evenly


class LinesPart:
    """Evenly spaced lines of an instance file."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, bytes]] = []
        self._step = 1

    def see(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Add numbered lines."""
        self._kept += [line for line in lines if line[0] % self._step == 0]
        while len(self._kept) > 2 * PART:
            self._step *= 2
            self._kept = [line for line in self._kept if line[0] % self._step == 0]

    def text(self) -> str:
        """Return the kept lines as an instance file."""
        return "".join(line.decode(errors="replace").rstrip("\r\n") + "\n" for _, line in self._kept)


class CocoPart:
    """Images of a COCO file drawn by id, with their annotations; the lists may come in any order."""

    def __init__(self) -> None:
        self._step = 1
        self._rows: dict[str, list[Any]] = {"images": [], "annotations": [], "categories": []}

    def see(self, key: str, row: Any) -> None:
        """Add a row of a list."""
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
        """Return a COCO file of the drawn images and their annotations."""
        images = self._rows["images"]
        images = [images[i * len(images) // PART] for i in range(PART)] if len(images) > PART else images
        image_ids = {_image_of(image, "id") for image in images if isinstance(image, dict)}
        rows = self._rows["annotations"]
        own = [row for row in rows if isinstance(row, dict) and _image_of(row, "image_id") in image_ids]
        return json.dumps({**self._rows, "images": images, "annotations": own})


def _image_of(row: dict[str, Any], key: str) -> int | str:
    """Return the id of an image; a number and its text give the same id."""
    value = row.get(key)
    return numbered(value if isinstance(value, int | str) else str(value))
