"""Measures how often `inspect` accuses clean data, on public sets and on generated tilings.

    uv run python packages/coord-data/benchmarks/false_alarms.py [tilings] [ANNOTATIONS IMAGES]...
        [--clones FOLDER] [--out runs/false_alarms] [--subsets 10] [--size 30]

Every set is measured as it is, with a random crop of each image, and with each second image mirrored. Sets are named
as for `planted_faults.py`; `tilings` are regular patterns with objects at their pitch: the same step leads from each
box to the next field, where strong edges are.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from clean_sets import draft_of
from PIL import Image, ImageDraw, ImageOps
from planted_faults import Draft, findings, read, resample

from coord_data.inspection.numbers.edges import EdgeMaps

SIDE = 320
Place = tuple[int, int, int, int]
"""Corners of a field in pixels."""


def _grid(rng: np.random.Generator, width: int, height: int, bond: bool = False) -> list[tuple[int, int, Place]]:
    """Return row, column and corners of the fields of a grid that begins anywhere."""
    left, top = -int(rng.integers(width)), -int(rng.integers(height))
    fields = []
    for row in range((SIDE - top) // height + 1):
        start = left - (width // 2) * (row % 2) * bond
        for column in range((SIDE - start) // width + 1):
            x, y = start + column * width, top + row * height
            fields.append((row, column, (x, y, x + width, y + height)))
    return fields


def _inside(place: Place) -> bool:
    return min(place) >= 0 and max(place) <= SIDE


def _reduced(place: Place, by: int) -> Place:
    x1, y1, x2, y2 = place
    return x1 + by, y1 + by, x2 - by, y2 - by


def _colour(rng: np.random.Generator, low: int = 30, high: int = 225) -> tuple[int, ...]:
    return tuple(rng.integers(low, high, 3).tolist())


def chess_board(rng: np.random.Generator, brush: ImageDraw.ImageDraw, pitch: int) -> list[Place]:
    """Draw a board with pieces on a quarter of its squares."""
    boxes = []
    for row, column, place in _grid(rng, pitch, pitch):
        brush.rectangle(place, fill=(235, 225, 200) if (row + column) % 2 else (90, 60, 40))
        if _inside(place) and rng.random() < 0.25:
            piece = _reduced(place, pitch // 6)
            brush.ellipse(piece, fill=(250, 250, 245) if rng.random() < 0.5 else (25, 20, 20), outline=(120, 110, 100))
            boxes.append(piece)
    return boxes


def bricks(rng: np.random.Generator, brush: ImageDraw.ImageDraw, pitch: int) -> list[Place]:
    """Draw a wall, of which some bricks have a poster."""
    boxes = []
    for _, _, place in _grid(rng, 2 * pitch, pitch, bond=True):
        red = int(rng.integers(120, 180))
        brush.rectangle(_reduced(place, 2), fill=(red, red // 2, red // 3))
        if _inside(place) and rng.random() < 0.15:
            poster = _reduced(place, pitch // 5)
            brush.rectangle(poster, fill=_colour(rng))
            boxes.append(poster)
    return boxes


def shelves(rng: np.random.Generator, brush: ImageDraw.ImageDraw, pitch: int) -> list[Place]:
    """Draw products side by side, all of them with a box."""
    boxes = []
    for _, _, place in _grid(rng, pitch, 2 * pitch):
        x1, y1, x2, y2 = place
        brush.rectangle((x1, y2 - pitch // 5, x2, y2), fill=(230, 230, 225))
        product = x1 + 2, y1 + int(rng.integers(pitch // 2)), x2 - 2, y2 - pitch // 5
        brush.rectangle(product, fill=_colour(rng))
        brush.rectangle(_reduced(product, pitch // 4), fill=_colour(rng))
        if _inside(place):
            boxes.append(product)
    return boxes


def some_of_shelves(rng: np.random.Generator, brush: ImageDraw.ImageDraw, pitch: int) -> list[Place]:
    """Draw products side by side, a third of them with a box."""
    return [box for box in shelves(rng, brush, pitch) if rng.random() < 0.33]


def keyboard(rng: np.random.Generator, brush: ImageDraw.ImageDraw, pitch: int) -> list[Place]:
    """Draw equal keys with a mark, a fifth of them with a box."""
    boxes = []
    for _, _, place in _grid(rng, pitch, pitch, bond=True):
        key = _reduced(place, pitch // 8)
        brush.rounded_rectangle(key, pitch // 8, fill=(70, 70, 75), outline=(20, 20, 20))
        x, y = place[0] + pitch // 3, place[1] + pitch // 3
        brush.line((x, y, x + int(rng.integers(3, 12)), y + int(rng.integers(3, 12))), fill=(240, 240, 240), width=2)
        if _inside(place) and rng.random() < 0.2:
            boxes.append(key)
    return boxes


def car_park(rng: np.random.Generator, brush: ImageDraw.ImageDraw, pitch: int) -> list[Place]:
    """Draw marked places with cars on a half of them, in two colours."""
    boxes = []
    for _, _, place in _grid(rng, pitch, 2 * pitch):
        brush.rectangle(place, fill=(110, 110, 112), outline=(250, 250, 250), width=3)
        if _inside(place) and rng.random() < 0.5:
            car = _reduced(place, pitch // 6)
            brush.rounded_rectangle(car, pitch // 5, fill=(200, 30, 30) if rng.random() < 0.5 else (225, 225, 230))
            brush.rectangle(_reduced(car, pitch // 5), fill=(40, 45, 60))
            boxes.append(car)
    return boxes


TILINGS: dict[str, Callable[[np.random.Generator, ImageDraw.ImageDraw, int], list[Place]]] = {
    "chess boards": chess_board,
    "bricks": bricks,
    "shelves": shelves,
    "some of shelves": some_of_shelves,
    "keyboards": keyboard,
    "car parks": car_park,
}
"""Regular patterns by name."""


def tiling(name: str, count: int, *, one_camera: bool, seed: int = 0) -> Draft:
    """Return images of a regular pattern, with boxes around its objects.

    Args:
        name: one of `TILINGS`
        count: number of images
        one_camera: the pattern has the same pitch and place in all images, as before a fixed camera
        seed: decides what is drawn
    """
    rng = np.random.default_rng([seed, *name.encode()])
    pitch, place = int(rng.integers(28, 56)), int(rng.integers(1 << 30))
    images, corners, labels = {}, [], []
    while len(images) < count:
        canvas = Image.new("RGB", (SIDE, SIDE), (128, 125, 120))
        of_image = pitch if one_camera else int(rng.integers(28, 56))
        drawn = _SameStart(rng, place) if one_camera else rng
        boxes = TILINGS[name](drawn, ImageDraw.Draw(canvas), of_image)
        if not boxes:
            continue
        noisy = np.asarray(canvas, np.float32) + rng.normal(0, 6, (SIDE, SIDE, 3))
        images[f"{len(images):04d}.png"] = Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))
        corners.append(np.array(boxes) / SIDE)
        labels.append(("x",) * len(boxes))
    return Draft(images, tuple(corners), tuple(labels))


class _SameStart:
    """A generator whose first two integers, where the grid begins, are the same in all images."""

    def __init__(self, rng: np.random.Generator, place: int) -> None:
        self.rng, self.starts = rng, [place, place >> 8]

    def integers(self, low: int, high: int | None = None, size: int | None = None) -> int | np.ndarray:
        return self.starts.pop() % low if self.starts else self.rng.integers(low, high, size)

    def random(self) -> float:
        return self.rng.random()


def cropped(draft: Draft, rng: np.random.Generator) -> Draft:
    """Return a random part of each image, of half to nearly all of its sides, with the boxes in it."""
    images, corners, labels = {}, [], []
    for (name, image), boxes, words in zip(draft.images.items(), draft.corners, draft.labels, strict=True):
        share = rng.uniform(0.5, 0.9, 2)
        low = rng.uniform(0, 1 - share)
        x1, y1, x2, y2 = np.rint(np.concatenate([low, low + share]) * np.tile(image.size, 2)).astype(int)
        part = (boxes * np.tile(image.size, 2) - (x1, y1, x1, y1)) / np.tile((x2 - x1, y2 - y1), 2)
        kept = part.clip(0, 1)
        area, whole = ((b[:, 2:] - b[:, :2]).prod(axis=1) for b in (kept, part))
        is_left = area > 0.5 * whole
        if is_left.any():
            images[name] = image.crop((x1, y1, x2, y2))
            corners.append(kept[is_left])
            labels.append(tuple(word for word, left in zip(words, is_left, strict=True) if left))
    return replace(draft, images=images, corners=tuple(corners), labels=tuple(labels))


def half_mirrored(draft: Draft) -> Draft:
    """Return the draft with each second image mirrored, and its boxes."""
    images, corners = {}, []
    for k, ((name, image), boxes) in enumerate(zip(draft.images.items(), draft.corners, strict=True)):
        images[name] = ImageOps.mirror(image) if k % 2 else image
        corners.append(np.stack([1 - boxes[:, 2], boxes[:, 1], 1 - boxes[:, 0], boxes[:, 3]], 1) if k % 2 else boxes)
    return replace(draft, images=images, corners=tuple(corners))


COPIES: dict[str, Callable[[Draft], Draft]] = {
    "as it is": lambda draft: draft,
    "cropped": lambda draft: cropped(draft, np.random.default_rng(0)),
    "half mirrored": half_mirrored,
}
"""What is measured of each set."""


class Rows:
    """What is said of each subset, in a file to which a row is appended at once; those that are there are not repeated.

    Args:
        path: the file, of JSON lines
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.rows = [json.loads(line) for line in path.read_text().splitlines()]
        self.known = {(row["set"], row["copy"], row["subset"]) for row in self.rows}

    def add(self, **row: Any) -> None:
        """Append a row."""
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def table(self) -> str:
        """Return a table of the sets, with a row of the sums."""
        lines = ["| set | copy | subsets | errors | warnings | said | seconds |", "|---|---|---|---|---|---|---|"]
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault((row["set"], row["copy"]), []).append(row)
        for (name, copy), rows in [*groups.items(), (("all", ""), self.rows)]:
            said = Counter(f"{severity}: {code}" for row in rows for code, severity in row["said"].items())
            errors, warnings = (sum(s in row["said"].values() for row in rows) for s in ("error", "warning"))
            listed = ", ".join(f"{what} {count}" for what, count in said.most_common()) or "nothing"
            seconds = sum(row["seconds"] for row in rows)
            lines.append(f"| {name} | {copy} | {len(rows)} | {errors} | {warnings} | {listed} | {seconds:.0f} |")
        return "\n".join(lines)


def measure(name: str, draft_of: Callable[[], Draft | None], subsets: int, size: int, rows: Rows) -> None:
    """Add what is said of subsets of a set and of its copies; the set is read only if a row is missing."""
    missing = [(copy, k) for copy in COPIES for k in range(subsets) if (name, copy, k) not in rows.known]
    draft = draft_of() if missing else None
    for copy in COPIES if draft is not None else ():
        numbers = [k for of_copy, k in missing if of_copy == copy]
        if not numbers:
            continue
        copied = COPIES[copy](draft)
        all_maps, count = EdgeMaps.of(copied.images.values()), min(size, len(copied.images))
        for k in numbers:
            began = time.process_time()
            chosen = np.random.default_rng([k, *name.encode()]).permutation(len(copied.images))[:count]
            part, maps = resample(copied, all_maps, np.sort(chosen))
            said = findings(replace(part, coco=bool(k % 2)), maps)
            rows.add(set=name, copy=copy, subset=k, said=said, seconds=round(time.process_time() - began, 2))


def main(
    sets: Annotated[list[str], typer.Argument(help="`tilings`, or annotations and images, in turn.")] = ["tilings"],  # noqa: B006
    clones: Annotated[Path | None, typer.Option(help="A folder of clones of repositories with clean sets.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of what is kept; the same command continues.")] = Path(
        "runs/false_alarms"
    ),
    subsets: Annotated[int, typer.Option(help="Subsets of each set and of each of its copies.")] = 10,
    size: Annotated[int, typer.Option(help="Images of a subset.")] = 30,
) -> None:
    """Print a table: what is said of clean subsets of each set."""
    words, rows = list(sets), Rows(out / "subsets.jsonl")
    folders = (
        [] if clones is None else sorted(path for path in clones.iterdir() if path.name[:1] != "." and path.is_dir())
    )
    for folder in folders:
        measure(folder.name, partial(draft_of, folder, out / "sets"), subsets, size, rows)
    while words:
        word = words.pop(0)
        if word == "tilings":
            for name, one_camera in product(TILINGS, (False, True)):
                named = f"{name}{', one camera' if one_camera else ''}"
                measure(named, partial(tiling, name, 2 * size, one_camera=one_camera), subsets, size, rows)
        else:
            measure(Path(word).parent.name, partial(read, Path(word), Path(words.pop(0))), subsets, size, rows)
    print(rows.table())


if __name__ == "__main__":
    typer.run(main)
