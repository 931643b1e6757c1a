"""Clean public sets for the trials of `inspect`: clones of repositories that hold images and their boxes.

A clone is read from its newest commit: Pascal VOC, COCO JSON, YOLO labels, or a CSV with the four corners. Some images
of each, spread over the set and reduced, are kept with their boxes in a folder, so that a trial reads them at once.
"""

import csv
import io
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from planted_faults import Draft

SIDE, KEPT = 480, 120
"""Longer side in pixels of the images that are kept, and their number."""
_LEAST = 20
"""Images from which a clone is a set."""
_SUFFIXES = (".jpg", ".jpeg", ".png")
Boxes = dict[str, list[Sequence[float]]]
"""Corners in [0, 1], or in pixels, of the objects of each image by the stem of its name."""


class Clone:
    """Files of the newest commit of a clone, bare or with its work tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repo" if (folder / "repo").is_dir() else folder
        rows = self._git("ls-tree", "-r", "-z", "HEAD").decode(errors="replace").split("\0")
        fields = (row.partition("\t") for row in rows if row)
        self.blobs = {path: facts.split()[2] for facts, _, path in fields}

    def _git(self, *words: str) -> bytes:
        command = ["git", "-C", str(self.folder), *words]
        return subprocess.run(command, capture_output=True, check=True).stdout

    def read(self, path: str) -> bytes:
        """Return the content of a file; nothing of one that the clone lacks."""
        try:
            return self._git("cat-file", "blob", self.blobs[path])
        except subprocess.CalledProcessError:
            return b""

    def ending(self, *suffixes: str) -> list[str]:
        """Return the paths of files by the ends of their names."""
        return sorted(path for path in self.blobs if path.lower().endswith(suffixes))

    def boxes(self) -> Boxes:
        """Return the boxes of all images that annotations in one of the four formats name."""
        found: Boxes = defaultdict(list)
        coco = [path for path in self.ending(".json") if _is_coco(self.read(path))]
        xml = self.ending(".xml")
        readers = (
            (_coco, coco),
            (_voc, _spread(xml)),
            (_csv, [] if coco or xml else self.ending(".csv")),
            (_labels, [] if coco or xml else _spread(self.ending(".txt"))),
        )
        for read, paths in readers:
            for path in paths:
                for name, box in read(Path(path).stem, self.read(path)):
                    found[name].append(box)
        return found


def _spread(paths: list[str], count: int = 2 * KEPT) -> list[str]:
    """Return some paths, evenly spaced."""
    return [paths[k] for k in np.unique(np.linspace(0, len(paths) - 1, count).astype(int))] if paths else []


def _is_coco(content: bytes) -> bool:
    return b'"annotations"' in content and b'"images"' in content and b'"bbox"' in content


Row = tuple[str, Sequence[float]]
"""The stem of the name of an image, and the corners of an object."""


def _coco(stem: str, content: bytes) -> Iterator[Row]:
    document = json.loads(content)
    names = {image["id"]: Path(image["file_name"]).stem for image in document["images"]}
    for row in document["annotations"]:
        if row["image_id"] in names and not row.get("iscrowd") and len(row.get("bbox", ())) == 4:
            x, y, w, h = map(float, row["bbox"])
            yield names[row["image_id"]], (x, y, x + w, y + h)


def _voc(stem: str, content: bytes) -> Iterator[Row]:
    try:
        root = ET.fromstring(content)
    except ET.ParseError:
        return
    for found in root.iter("bndbox"):
        yield stem, [float(found.findtext(side) or "nan") for side in ("xmin", "ymin", "xmax", "ymax")]


def _csv(stem: str, content: bytes) -> Iterator[Row]:
    """Yield rows with a path of an image and four numbers, which are its corners."""
    for cells in csv.reader(io.StringIO(content.decode(errors="replace"))):
        path = next((cell for cell in cells if cell.lower().endswith(_SUFFIXES)), "")
        numbers = _numbers(cells)
        if path and len(numbers) in (4, 6):  # the sides of the image precede them
            yield Path(path).stem, numbers[-4:]


def _labels(stem: str, content: bytes) -> Iterator[Row]:
    """Yield YOLO boxes, bounds of YOLO polygons, or the corners and class of circuit boards."""
    for line in content.decode(errors="replace").splitlines():
        numbers = _numbers(line.split())
        if len(numbers) < 5 or len(numbers) % 2 == 0:
            return
        if max(numbers[1:4]) > 1:
            yield f"{stem}_test", numbers[:4]
        elif len(numbers) == 5:
            _, cx, cy, w, h = numbers
            yield stem, (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)
        else:
            x, y = numbers[1::2], numbers[2::2]
            yield stem, (min(x), min(y), max(x), max(y))


def _numbers(words: Iterable[str]) -> list[float]:
    return [float(word) for word in words if re.fullmatch(r"[0-9]+(\.[0-9]+)?", word)]


def draft_of(folder: Path, kept: Path) -> Draft | None:
    """Return the images of a clone that are kept, with their boxes; None for a clone without enough of them."""
    place = kept / folder.name
    if not (place / "boxes.json").is_file():
        _keep(Clone(folder), place)
    boxes: Mapping[str, list[list[float]]] = json.loads((place / "boxes.json").read_text())
    if len(boxes) < _LEAST:
        return None
    images = {name: Image.open(place / name).convert("RGB") for name in boxes}
    corners = tuple(np.array(rows) for rows in boxes.values())
    return Draft(images, corners, tuple(("x",) * len(rows) for rows in corners))


def _keep(clone: Clone, place: Path) -> None:
    """Write some images of a clone, reduced, and then their boxes."""
    place.mkdir(parents=True, exist_ok=True)
    of_stem, written = clone.boxes(), {}
    paths = [path for path in clone.ending(*_SUFFIXES) if Path(path).stem in of_stem]
    paths = list({Path(path).stem: path for path in paths}.values())
    for path in _spread(paths, KEPT):
        corners = np.array(of_stem[Path(path).stem]).reshape(-1, 4)
        try:
            with Image.open(io.BytesIO(clone.read(path))) as stored:
                corners = corners / np.tile(stored.size if np.nanmax(corners) > 2 else 1, 4)[:4]
                stored.draft("RGB", (SIDE, SIDE))
                image = stored.convert("RGB")
        except OSError:
            continue
        corners = np.unique(corners[np.isfinite(corners).all(axis=1)], axis=0).clip(0, 1)
        corners = corners[(corners[:, :2] < corners[:, 2:]).all(axis=1)]
        if len(corners):
            image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
            name = f"{len(written):04d}.jpg"
            image.save(place / name, quality=95)
            written[name] = corners.tolist()
    (place / "boxes.json").write_text(json.dumps(written))
