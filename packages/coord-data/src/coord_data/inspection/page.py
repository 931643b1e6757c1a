"""inspect.html: the findings, sample images with their boxes, duplicates side by side, and distributions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coord_codec import CoordGrid, Instance
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_codec.pages import (
    Card,
    Drawn,
    Gallery,
    columns,
    figure,
    image_svg,
    label_key,
    notes,
    page,
    safe,
    section,
    table,
    tiles,
)
from coord_data.finding import Finding
from coord_data.inspection.both_readings import sections_of_readings
from coord_data.inspection.examine import Examination
from coord_data.looking.alike import records_of

if TYPE_CHECKING:
    from PIL import Image

_SMALL = 160  # longer side of the images of a pair
_PAIRS = 100  # pairs of each finding that are drawn; the others are listed
_UNFOLDED = 12  # pairs of each finding that are seen at once
_CLASSES = 60  # listed at most
_BINS = 16  # rows of a histogram at most
_REFUSED = "faults of records and objects, which are left out of training and scoring"
STYLE = """
.findings td, .findings th { text-align: left; white-space: normal; padding: 5px 18px 5px 0; }
.findings td:nth-child(-n+2) { white-space: nowrap; font-weight: 600; min-width: 0; }
@media (max-width: 700px) {
  .findings thead { display: none; } .findings tr { display: block; border-bottom: 1px solid var(--line); }
  .findings td { display: block; border: 0; padding: 2px 0; }
  .findings td:nth-child(-n+2) { display: inline-block; margin-right: 10px; }
  .findings td:nth-child(5)::before { content: "records: "; }
}
.bars table { width: 100%; margin: 0; }
.bars th, .bars td { border: 0; padding: 1px 10px 1px 0; font-size: 12px; white-space: nowrap; min-width: 0; }
.bars td { width: 100%; max-width: none; }
.bars i { display: inline-block; height: 10px; border-radius: 2px; background: var(--s0); margin-right: 6px; }
.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(340px, 100%), 1fr)); gap: 14px;
  margin: 0 0 12px; }
.pairs svg.overlay { display: inline-block; width: 48%; vertical-align: top; }
.pairs rect, .pairs .casing { vector-effect: non-scaling-stroke; }
"""


@dataclass(frozen=True)
class Page:
    """What a program that knows more of the data than its files adds to the page.

    Attributes:
        tiles: name, value and explanation of further figures at the top
        images: the section about images, title and HTML; the images with their boxes if None
        sections: title and HTML of further sections
        style: CSS of these parts
        facts: what is named below the heading
        title: heading of the page
    """

    tiles: tuple[tuple[str, object, str], ...] = ()
    images: tuple[str, str] | None = None
    sections: tuple[tuple[str, str], ...] = ()
    style: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    title: str = "Data inspected"


def write_page(path: Path, examination: Examination, added: Page, shown: Sequence[Instance]) -> None:
    """Write inspect.html; the images of some records are shown unless `added` brings its own section."""
    found, raw, usable = examination.findings, examination.raw, len(examination.usable)
    severities = Counter(finding.severity for finding in found)
    summary = ", ".join(counted(n, severity) for severity, n in severities.items()) or "none"
    rows = [(f.severity, f.code, f.message, f.evidence, f.count, f.fix) for f in found]
    listed = f'<div class="findings">{table(("", "code", "fault", "evidence", "records", "fix"), rows)}</div>'
    scale = CoordGrid().scale
    boxes_N4 = examination.boxes
    sides = np.minimum(boxes_N4[:, 2] - boxes_N4[:, 0], boxes_N4[:, 3] - boxes_N4[:, 1]) * scale
    counts = np.bincount(raw.image_N, minlength=len(raw.files))
    distributions = (
        histogram("Shorter side of the boxes", sides, f"bins of {scale}"),
        histogram("Objects per image", counts, "objects"),
        _classes(raw.class_counts),
    )
    cells = [
        ("Images", len(raw.files), f"{usable} usable"),
        ("Boxes", len(raw), f"{examination.usable_boxes} usable"),
        ("Refused", len(examination.annotations.problems), _REFUSED),
        *added.tiles,
    ]
    images = added.images or ("Images", _images(shown, examination))
    parts = [
        tiles(cells),
        section("Findings", listed if found else "<p>Nothing wrong was found.</p>", summary),
        *sections_of_readings(examination),
        section(*images, f"{len(shown)} of {usable}"),
        section("Classes, sizes, object counts", columns(*distributions)),
        *(
            section(f"{f.code}: {f.message}", _pairs(f, examination), counted(f.count, "record"))
            for f in found
            if f.pairs
        ),
        *(section(title, html) for title, html in added.sections),
    ]
    facts = {**added.facts, "folder": examination.root.name or ".", "date": time.strftime("%Y-%m-%d %H:%M")}
    write_text(path, page(added.title, "\n".join(parts), STYLE + added.style, facts))


def _images(shown: Sequence[Instance], examination: Examination) -> str:
    names = {instance.image for instance in shown}
    rows = {name: row for row, name in enumerate(examination.raw.files) if name in names}
    images = Gallery(dict.fromkeys(target.desc for instance in shown for target in instance.targets), len(shown))
    for instance in shown:
        image = images.read(instance.image, examination.root / instance.image)
        if image is None:
            continue
        drawn = [Drawn(target.desc, target.bbox, slot=images.slots[target.desc]) for target in instance.targets]
        width, height = (round(side) for side in examination.files.sizes[rows[instance.image]])
        caption = f"{instance.image}: {width} x {height}, {counted(len(drawn), 'object')}"
        add_image(images, instance.image, image, drawn, caption)
    return images_html(images)


def add_image(
    images: Gallery, name: str, image: Image.Image, drawn: Sequence[Drawn], caption: str, details: str = ""
) -> None:
    """Add an image with boxes to those of this page; the details are HTML, which folds below the caption."""
    areas = [(box.box[2] - box.box[0]) * (box.box[3] - box.box[1]) for box in drawn]
    values = 0, len(drawn), min(areas, default=1)  # the first order is that of the cards
    objects = images.tokens(box.label for box in drawn)
    images.add(Card(image_svg(name, image.size, drawn, images.embed(image)), caption, details, objects, values))


def images_html(images: Gallery) -> str:
    """Return the images of this page with the colours of their labels."""
    sorts = (("in the order of the file", False), ("most objects", True), ("smallest object", False))
    return label_key(images.slots) + notes(images.notes) + images.html(sorts=sorts)


def _pairs(finding: Finding, examination: Examination) -> str:
    """Return the first pairs of a finding side by side, conflicting boxes drawn on both, and a list of all others."""
    leaks = finding.code == "leakage" and examination.leak_roots
    roots = leaks or (examination.root, examination.root)  # the folders of the first and the second image of each pair
    conflicting = set(chain(*finding.pairs[:_PAIRS])) if finding.code == "conflicting_boxes" else ()
    records = records_of(examination.annotations.instances, conflicting)
    labels = (target.desc for instance in records for target in instance.targets)
    images = Gallery(labels, 2 * len(finding.pairs[:_PAIRS]))
    boxes: dict[str, list[list[Drawn]]] = {}
    for instance in records:
        drawn = [
            Drawn(target.desc, target.bbox, slot=images.slots[target.desc], named=False) for target in instance.targets
        ]
        boxes.setdefault(instance.image, []).append(drawn)
    figures = []
    for pair in finding.pairs[:_PAIRS]:
        # An image with several records is a pair with itself.
        drawn_on = boxes.get(pair[0], [[]])[0], boxes.get(pair[1], [[]])[-1]
        thumbnails = map(partial(_thumbnail, images), roots, pair, drawn_on)
        figures.append(figure("".join(thumbnails), f"{pair[0]} and {pair[1]}"))
    html = f'<div class="pairs">{"".join(figures[:_UNFOLDED])}</div>'
    if others := finding.pairs[_UNFOLDED:]:
        rest = f'<div class="pairs">{"".join(figures[_UNFOLDED:])}</div>'
        rest += table(("", ""), finding.pairs[_PAIRS:]) if finding.pairs[_PAIRS:] else ""
        html += f"<details><summary>{counted(len(others), 'further pair')}</summary>{rest}</details>"
    return html


def _thumbnail(images: Gallery, root: Path, name: str, drawn: Sequence[Drawn]) -> str:
    """Return an image of a pair; empty for one that is missing: of a large set not every image is looked at."""
    image = images.read(name, root / name, _SMALL)
    return "" if image is None else image_svg(name, image.size, drawn, images.embed(image, _SMALL)) + " "


def _classes(classes: Counter[str]) -> str:
    counts = classes.most_common()
    further = counted(len(counts) - _CLASSES, "further class", "further classes")
    listed = table(("class", "boxes"), counts[:_CLASSES]) + (f"<p>{further}.</p>" if len(counts) > _CLASSES else "")
    return f"<details><summary>{counted(len(counts), 'class', 'classes')}</summary>{listed}</details>"


def histogram(title: str, values: Sequence[float] | np.ndarray, unit: str) -> str:
    """Return a histogram as a table with a bar in each row; empty without values."""
    if not len(values):
        return ""
    values = np.asarray(values, np.float64)
    low, high = float(values.min()), float(values.max())
    if (values % 1 == 0).all():
        step = -(-int(high - low + 1) // _BINS)
        edges = np.arange(low, high + step + 1, step, dtype=np.float64)
        labels = [f"{a:.0f}" if step == 1 else f"{a:.0f} to {a + step - 1:.0f}" for a in edges[:-1]]
    else:
        if high - low < 1e-6 * max(1.0, abs(high)):  # equal but for rounding: NumPy finds no room for bins between them
            low, high = low - 0.5, high + 0.5
        edges = np.linspace(low, high, _BINS + 1)
        labels = [f"{a:.3g} to {b:.3g}" for a, b in pairwise(edges.tolist())]
    counts = np.histogram(values, edges)[0].tolist()
    largest = max(counts)
    rows = "".join(
        f'<tr><th>{label}</th><td><i style="width:{70 * count / largest:.1f}%"></i>{count}</td></tr>'
        for label, count in zip(labels, counts, strict=True)
    )
    return f'<figure class="bars"><table>{rows}</table><figcaption>{safe(title)}, {safe(unit)}</figcaption></figure>'
