"""Measures how often `inspect` finds planted faults, how often it reports false alarms, and how long it takes.

    uv run python packages/coord-data/benchmarks/planted_faults.py [shapes] [ANNOTATIONS IMAGES]...
        [--subsets 20] [--clean 200] [--pairs] [--anywhere 100]

Every set is one name: `shapes`, or a COCO JSON file or a folder of Pascal VOC files, with the folder of its images.
"""

import itertools
import json
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image, ImageDraw

from coord_codec.box_transforms import swap_axes
from coord_data.inspection.numbers.edges import SIDE, EdgeMaps, Sample
from coord_data.inspection.numbers.geometry import examine_geometry
from coord_data.looking.alike import groups_of_alike
from coord_data.looking.hashes import grey_values, perceptual_hashes
from coord_data.reading.rules import ReadingRules
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import inflate


def _sized(b):
    return np.concatenate([b[:, :2], b[:, 2:] - b[:, :2]], axis=1)


def _centred(b):
    return np.concatenate([(b[:, :2] + b[:, 2:]) / 2, b[:, 2:] - b[:, :2]], axis=1)


@dataclass(frozen=True)
class DataSource:
    """Annotations that a draft was written to, and how they are read."""

    annotations: Path
    images: Path | None = None
    format: str = "auto"
    allow_outside: bool = False

    @property
    def rules(self) -> ReadingRules:
        """How the annotations are read."""
        return ReadingRules(images=self.images, format=self.format, allow_outside=self.allow_outside)


_ENCODED: dict[int, tuple[Image.Image, bytes]] = {}
"""Files of images by `id`, which holds as long as the image is kept."""


@dataclass(frozen=True)
class Draft:
    """A data set in memory, into which faults can be planted.

    Attributes:
        images: by name
        corners: of the objects of each image, in [0, 1]
        labels: of the objects of each image
        coco: write COCO JSON instead of instance JSONL
        layout: from corners to the four numbers
        unit: from the size of an image to what its corners are multiplied by
        owners: which image's numbers and labels stand beside each image; None for its own
    """

    images: dict[str, Image.Image]
    corners: tuple[np.ndarray, ...]
    labels: tuple[tuple[str, ...], ...]
    coco: bool = False
    layout: Callable[[np.ndarray], np.ndarray] | None = None
    unit: Callable[[np.ndarray], np.ndarray] | None = None
    owners: tuple[int, ...] | None = None

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> "Draft":
        """Return the draft with other boxes."""
        return replace(self, corners=tuple(np.clip(move(c), 0, 1) for c in self.corners))

    def subset(self, chosen) -> "Draft":
        """Return some of its images."""
        names = list(self.images)
        return replace(
            self,
            images={names[i]: self.images[names[i]] for i in chosen},
            corners=tuple(self.corners[i] for i in chosen),
            labels=tuple(self.labels[i] for i in chosen),
        )

    def numbers(self) -> list[np.ndarray]:
        """Return the four numbers of each object as a file states them."""
        layout = self.layout or (_sized if self.coco else lambda b: b)
        unit = self.unit or ((lambda size: size) if self.coco else np.ones_like)
        pairs = zip(self.corners, self.images.values(), strict=True)
        numbers = [layout(c * np.tile(unit(np.array(i.size, float)), 2)) for c, i in pairs]
        return numbers if self.owners is None else [numbers[i] for i in self.owners]

    def names(self) -> list[tuple[str, ...]]:
        """Return the labels beside the numbers."""
        return list(self.labels) if self.owners is None else [self.labels[i] for i in self.owners]

    def raw(self) -> RawBoxes:
        """Return the numbers as the inspection reads them."""
        numbers = self.numbers()
        owner = np.concatenate([np.full(len(rows), i) for i, rows in enumerate(numbers)])
        sizes = np.array([image.size for image in self.images.values()], float)
        reading = ("xywh", "pixels") if self.coco else ("xyxy", "unit")
        return RawBoxes.of(tuple(self.images), sizes, owner, np.concatenate(numbers), sum(self.names(), ()), *reading)

    def write_images(self, folder: Path) -> None:
        """Write the images; each is encoded once, however often it is written."""
        for name, image in self.images.items():
            if id(image) not in _ENCODED:
                image.save(folder / name)
                _ENCODED[id(image)] = image, (folder / name).read_bytes()
            (folder / name).write_bytes(_ENCODED[id(image)][1])

    def write(self, folder: Path) -> DataSource:
        """Write annotations and images."""
        folder.mkdir(parents=True, exist_ok=True)
        self.write_images(folder)
        rows = list(zip(self.images.items(), self.numbers(), self.names(), strict=True))
        if not self.coco:
            records = []
            for (name, image), boxes, labels in rows:
                objects = [{"desc": d, "bbox": b} for d, b in zip(labels, boxes.tolist(), strict=True)]
                records.append({"image": name, "width": image.width, "height": image.height, "objects": objects})
            (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
            return DataSource(folder / "a.jsonl")
        classes = sorted(set(sum(self.labels, ())))
        document = {
            "images": [
                {"id": i, "file_name": name, "width": image.width, "height": image.height}
                for i, ((name, image), _, _) in enumerate(rows)
            ],
            "categories": [{"id": i, "name": name} for i, name in enumerate(classes)],
            "annotations": [
                {"image_id": i, "category_id": classes.index(d), "bbox": b}
                for i, (_, boxes, labels) in enumerate(rows)
                for d, b in zip(labels, boxes.tolist(), strict=True)
            ],
        }
        (folder / "a.json").write_text(json.dumps(document))
        return DataSource(folder / "a.json", folder)


def shuffle(draft: Draft) -> Draft:
    """Give every image the boxes of another one."""
    order = np.random.default_rng(3).permutation(len(draft.corners))
    order = np.where(order == np.arange(len(order)), np.roll(order, 1), order)
    return replace(draft, owners=tuple(order.tolist()))


def padded(draft: Draft, side: float) -> Draft:
    """Return the boxes of square copies that have each image in their middle."""
    fields = [np.array(i.size) / max(i.size) for i in draft.images.values()]
    corners = tuple(c * np.tile(f, 2) + np.tile((1 - f) / 2, 2) for c, f in zip(draft.corners, fields, strict=True))
    return replace(draft, corners=corners, unit=lambda size: np.full_like(size, side))


JSONL = {
    "xywh": lambda d: replace(d, layout=_sized),
    "cxcywh": lambda d: replace(d, layout=_centred),
    "yxyx": lambda d: replace(d, layout=swap_axes),
    "pixels": lambda d: replace(d, unit=lambda size: size),
    "norm1000": lambda d: replace(d, unit=lambda size: np.full_like(size, 1000)),
}
"""Faults of instance records by the code that names them."""
COCO = {
    "xyxy": lambda d: replace(d, layout=lambda b: b),
    "cxcywh": lambda d: replace(d, layout=_centred),
    "swapped_axes": lambda d: replace(d, layout=lambda b: swap_axes(_sized(b))),
    "unit": lambda d: replace(d, unit=np.ones_like),
    "norm1000": lambda d: replace(d, unit=lambda size: np.full_like(size, 1000)),
    "resized": lambda d: replace(d, unit=lambda size: size / 2),
    "resized, .8": lambda d: replace(d, unit=lambda size: size * 0.8),
    "resized, 512": lambda d: replace(d, unit=lambda size: 512 * size / size.max()),
    "resized, .95": lambda d: d.moved(lambda b: b * 0.95),
    "shifted, 3 %": lambda d: d.moved(lambda b: np.add(b, (0.03, 0, 0.03, 0))),
    "too_large, 4 %": lambda d: d.moved(lambda b: inflate(b, 1.04)),
    "too_large, 10 %": lambda d: d.moved(lambda b: inflate(b, 1.1)),
    "too_large, 20 %": lambda d: d.moved(lambda b: inflate(b, 1.2)),
    "too_small, 10 %": lambda d: d.moved(lambda b: inflate(b, 0.9)),
    "too_small, 20 %": lambda d: d.moved(lambda b: inflate(b, 0.8)),
    "mirrored": lambda d: d.moved(lambda b: np.stack([1 - b[:, 2], b[:, 1], 1 - b[:, 0], b[:, 3]], axis=1)),
    "shuffled": shuffle,
}
"""Faults of COCO files by the code that names them; what follows a comma tells cases apart."""
KINDS = (
    ("xyxy", "cxcywh", "swapped_axes"),
    ("unit", "norm1000", "resized, .8"),
    ("shifted, 3 %", "too_large, 20 %", "too_small, 20 %", "mirrored"),
    ("shuffled",),
)
"""Faults of COCO files: of order, unit, place and image. Two of different kinds do not contradict each other."""


COLOURS = {"red": (220, 40, 40), "green": (40, 190, 60), "blue": (50, 70, 220)}
FORMS = ("circle", "square", "triangle")
IMAGE_SIDE, FINER, NOISE, LEAST, MOST = 96, 4, 8.0, 0.22, 0.5
"""Side of a generated image in pixels, how much finer it is drawn, noise of 255, and sides of its objects."""


def shapes(count: int) -> Draft:
    """Return generated images: one to three coloured forms on a noisy background, with boxes between the pixels."""
    rng = np.random.default_rng([1, *b"train"])
    images, corners, labels = {}, [], []
    for number in range(count):
        image, names, boxes = _drawn(rng)
        if names:
            images[f"train_{number:05d}.png"] = image
            corners.append(np.array(boxes))
            labels.append(tuple(names))
    return Draft(images, tuple(corners), tuple(labels))


def _drawn(rng: np.random.Generator) -> tuple[Image.Image, list[str], list[tuple[float, ...]]]:
    side = IMAGE_SIDE * FINER
    canvas = Image.new("RGB", (side, side), tuple(int(v) for v in rng.integers(180, 250, 3)))
    brush = ImageDraw.Draw(canvas)
    names, boxes = [], []
    for _ in range(rng.integers(1, 4)):
        box = _free_place(rng, boxes)
        if box is None:
            continue
        colour, form = list(COLOURS)[rng.integers(len(COLOURS))], FORMS[rng.integers(len(FORMS))]
        fill = tuple(int(np.clip(v + rng.integers(-25, 26), 0, 255)) for v in COLOURS[colour])
        x1, y1, x2, y2 = (round(v * side) for v in box)
        if form == "circle":
            brush.ellipse([x1, y1, x2 - 1, y2 - 1], fill=fill)
        elif form == "square":
            brush.rectangle([x1, y1, x2 - 1, y2 - 1], fill=fill)
        else:
            brush.polygon([((x1 + x2) // 2, y1), (x1, y2 - 1), (x2 - 1, y2 - 1)], fill=fill)
        names.append(f"{colour} {form}")
        boxes.append(box)
    pixels = np.asarray(canvas.reduce(FINER), dtype=np.float32)
    noisy = pixels + rng.normal(0, NOISE, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)), names, boxes


def _free_place(rng: np.random.Generator, taken: list[tuple[float, ...]]) -> tuple[float, ...] | None:
    for _ in range(30):
        width = rng.uniform(LEAST, MOST)
        height = float(np.clip(width * rng.uniform(0.8, 1.25), LEAST, MOST))
        x, y = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
        x1, y1, x2, y2 = float(x), float(y), float(x + width), float(y + height)
        if not any(min(x2, b[2]) > max(x1, b[0]) and min(y2, b[3]) > max(y1, b[1]) for b in taken):
            return x1, y1, x2, y2
    return None


def read(annotations: Path, images: Path) -> Draft:
    """Return a COCO file, or a folder of Pascal VOC files, with small images."""
    boxes = {name: b for name, b in (_voc if annotations.is_dir() else _coco)(annotations) if len(b)}
    pictures = {}
    for name in boxes:
        with Image.open(images / name) as stored:
            stored.draft("RGB", (2 * SIDE, 2 * SIDE))
            pictures[name] = stored.convert("RGB")
    return Draft(pictures, tuple(boxes.values()), tuple(("x",) * len(b) for b in boxes.values()))


def _coco(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    document = json.loads(path.read_text())
    for image in document["images"]:
        boxes = [a["bbox"] for a in document["annotations"] if a["image_id"] == image["id"] and not a["iscrowd"]]
        b = np.array(boxes, float).reshape(-1, 4) / ([image["width"], image["height"]] * 2)
        yield image["file_name"], np.concatenate([b[:, :2], b[:, :2] + b[:, 2:]], axis=1)


def _voc(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    for file in sorted(folder.glob("*.xml")):
        root = ET.parse(file).getroot()
        sides = ("xmin", "ymin", "xmax", "ymax")
        b = np.array([[float(o.findtext(f"bndbox/{s}")) for s in sides] for o in root.findall("object")])
        b = b.reshape(-1, 4) / ([float(root.findtext("size/width")), float(root.findtext("size/height"))] * 2)
        yield f"{file.stem}.jpg", b[(b[:, 0] < b[:, 2]) & (b[:, 1] < b[:, 3])]


def findings(draft: Draft, maps: EdgeMaps) -> dict[str, str]:
    """Return code and severity of the findings about all boxes."""
    raw = draft.raw()
    hash_I = perceptual_hashes([grey_values(image)[0] for image in draft.images.values()])
    sample = Sample(maps, np.arange(len(raw)), raw.image_N, groups_of_alike(hash_I))
    found, _ = examine_geometry(raw, raw.stated_I2, sample)
    return {finding.code: finding.severity for finding in found}


def is_named(code: str, found: dict[str, str]) -> bool:
    """Whether a fault is named and nothing else; notes are no alarm."""
    return code in found and not alarms(found) - {code}


def alarms(found: dict[str, str]) -> set[str]:
    """Return the codes of errors and warnings."""
    return {code for code, severity in found.items() if severity != "note"}


def resample(draft: Draft, maps: EdgeMaps, chosen: np.ndarray) -> tuple[Draft, EdgeMaps]:
    """Return some images of a set with their edges."""
    places = (values[chosen] for values in (maps.starts_I, maps.widths_I, maps.heights_I))
    return draft.subset(chosen), EdgeMaps(*places, maps.down, maps.across)


def measure(name: str, draft: Draft, subsets: int, clean: int, sizes: Sequence[int]) -> list[str]:
    """Return the rows of the table for one set."""
    rng = np.random.default_rng(0)
    cases = {f"{code} (JSONL)": (False, plant, code) for code, plant in JSONL.items()}
    cases |= {f"{code} (COCO)": (True, plant, code.partition(",")[0]) for code, plant in COCO.items()}
    if any(image.width != image.height for image in draft.images.values()):
        cases["padded, fractions (JSONL)"] = (False, lambda d: padded(d, 1.0), "padded")
        cases["padded, 640 pixels (COCO)"] = (True, lambda d: padded(d, 640.0), "padded")
    columns = [n for n in sizes if n <= len(draft.images)]
    named: dict[str, list[str]] = {case: [] for case in cases}
    all_maps = EdgeMaps.of(draft.images.values())
    wolf, notes = [], []
    for size in columns:
        hits = dict.fromkeys(cases, 0)
        for _ in range(subsets):
            part, maps = resample(draft, all_maps, rng.permutation(len(draft.images))[:size])
            for case, (coco, plant, code) in cases.items():
                hits[case] += is_named(code, findings(plant(replace(part, coco=coco)), maps))
        for case, count in hits.items():
            named[case].append(f"{count / subsets:.2f}")
        told: Counter[str] = Counter()
        for k in range(clean):
            part, maps = resample(draft, all_maps, rng.permutation(len(draft.images))[:size])
            found = findings(replace(part, coco=bool(k % 2)), maps)
            told.update({"alarm": bool(alarms(found)), **dict.fromkeys(found, 1)})
        wolf.append(f"{told.pop('alarm', 0)} of {clean}")
        notes.append(", ".join(f"{code} {count}" for code, count in told.items()) or "nothing")
    rows = [f"| {name} | {case} | {' | '.join(values)} |" for case, values in named.items()]
    rows.append(f"| {name} | false alarms on clean subsets | {' | '.join(wolf)} |")
    return [f"images: {columns}", *rows, f"| {name} | said of clean subsets, notes included | {' | '.join(notes)} |"]


def measure_pairs(name: str, draft: Draft, subsets: int, size: int = 30) -> list[str]:
    """Return a row for each pair of faults: how often both are named alone, one of them, or nothing."""
    rng, all_maps = np.random.default_rng(0), EdgeMaps.of(draft.images.values())
    chosen = [rng.permutation(len(draft.images))[:size] for _ in range(subsets)]
    rows, total = [], Counter()
    for first_kind, second_kind in itertools.combinations(KINDS, 2):
        for first, second in itertools.product(first_kind, second_kind):
            wanted, told = {code.partition(",")[0] for code in (first, second)}, Counter()
            for images in chosen:
                part, maps = resample(draft, all_maps, images)
                planted = replace(part, coco=True)
                for code in (second, first):  # boxes move before their numbers are written in another order
                    planted = COCO[code](planted)
                found = alarms(findings(planted, maps))
                told["both" if found == wanted else "one" if found & wanted else "other" if found else "nothing"] += 1
            total += told
            rows.append(f"| {name} | {first} and {second} | {dict(told)} |")
    return [*rows, f"| {name} | all pairs | {dict(total)} |"]


def measure_anywhere(name: str, draft: Draft, subsets: int) -> list[str]:
    """Return what is said of boxes that belong to no image: those of each are moved around by a random amount."""
    rng, all_maps, rows = np.random.default_rng(0), EdgeMaps.of(draft.images.values()), []

    def anywhere(corners: np.ndarray) -> np.ndarray:
        sides = corners[:, 2:] - corners[:, :2]
        low = (corners[:, :2] + rng.uniform(0.1, 0.9, 2)) % np.maximum(1 - sides, 1e-6)
        return np.concatenate([low, low + sides], axis=1)

    for size in (n for n in (10, 30) if n <= len(draft.images)):
        told: Counter[str] = Counter()
        for _ in range(subsets):
            part, maps = resample(draft, all_maps, rng.permutation(len(draft.images))[:size])
            found = alarms(findings(replace(part, coco=True).moved(anywhere), maps))
            told.update(found or {"nothing"})
        rows.append(f"| {name} | boxes anywhere, {size} images | {dict(told)} |")
    return rows


def main(
    sets: Annotated[list[str], typer.Argument(help="`shapes`, or annotations and images, in turn.")] = ["shapes"],  # noqa: B006
    subsets: Annotated[int, typer.Option(help="Subsets of each size that every fault is planted in.")] = 20,
    clean: Annotated[int, typer.Option(help="Clean subsets of each size.")] = 200,
    anywhere: Annotated[
        int, typer.Option(help="Subsets whose boxes are moved to random places, in place of faults.")
    ] = 0,
    sizes: Annotated[list[int], typer.Option(help="Numbers of images of a subset.")] = [10, 30, 100],  # noqa: B006
    pairs: Annotated[bool, typer.Option(help="Plant two faults at a time, in subsets of 30 images.")] = False,
) -> None:
    """Print a table: fault, share of subsets in which exactly that fault is named, by number of images."""
    words = list(sets)
    while words:
        word = words.pop(0)
        draft = shapes(300) if word == "shapes" else read(Path(word), Path(words.pop(0)))
        began = time.perf_counter()
        if anywhere:
            rows = measure_anywhere(word, draft, anywhere)
        else:
            rows = measure_pairs(word, draft, subsets) if pairs else measure(word, draft, subsets, clean, sizes)
        print(*rows, sep="\n")
        print(f"{time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    typer.run(main)
