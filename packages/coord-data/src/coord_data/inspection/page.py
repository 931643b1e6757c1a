"""inspect.html: the findings, sample images with their boxes, duplicates side by side, and distributions."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from coord_codec import CoordGrid, Instance
from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_codec.html import page, safe, section, table
from coord_codec.images import ImageError, decode_image
from coord_data.finding import Finding
from coord_data.inspection.examine import Examination

Named = tuple[str, tuple[float, ...]]
"""A description and its corners in [0, 1]."""

TRUTH = "#0f766e"
"""Colour of the boxes of the annotations."""
_SIDE = 480  # longer side of a drawing, in SVG units
_SMALL = 160  # longer side of the images of a pair
_PAIRS = 100  # pairs of each finding that are drawn; the others are listed
_CLASSES = 60  # listed at most
_BINS = 16  # rows of a histogram at most
STYLE = """
.findings td, .findings th { text-align: left; white-space: normal; padding: 5px 18px 5px 0;
  overflow-wrap: break-word; }
.findings td:nth-child(-n+2) { white-space: nowrap; font-weight: 600; }
.bars table { width: 100%; margin: 0; }
.bars th, .bars td { border: 0; padding: 1px 10px 1px 0; font-size: 12px; white-space: nowrap; }
.bars td { width: 100%; }
.bars i { display: inline-block; height: 10px; border-radius: 2px; background: #2563eb; margin-right: 6px; }
.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); gap: 14px; margin: 0 0 12px; }
.pairs img { max-width: 48%; border-radius: 6px; vertical-align: top; }
"""


@dataclass(frozen=True)
class Page:
    """What a program that knows more of the data than its files adds to the page.

    Attributes:
        tiles: name, value and explanation of further figures at the top
        images: the section about images, title and HTML; the images with their boxes if None
        sections: title and HTML of further sections
        style: CSS of these parts
    """

    tiles: tuple[tuple[str, object, str], ...] = ()
    images: tuple[str, str] | None = None
    sections: tuple[tuple[str, str], ...] = ()
    style: str = ""


def write_page(path: Path, examination: Examination, added: Page, shown: Sequence[Instance]) -> None:
    """Write inspect.html.

    Args:
        path: path of the page
        examination: the data set and its findings
        added: parts of another program
        shown: records whose images are shown, unless `added` brings its own section
    """
    paired = [finding for finding in examination.findings if finding.pairs]
    distributions = [_classes(examination), _sizes(examination), _counts(examination)]
    parts = [
        _tiles(examination, added.tiles),
        section("Findings", _findings(examination.findings)),
        section(*(added.images or ("Images", _images(shown, examination.root)))),
        *(section(f"{finding.code}: {finding.message}", _pairs(finding, examination)) for finding in paired),
        *(section(title, html) for title, html in added.sections),
        section("Classes, sizes, object counts", "".join(distributions)),
    ]
    write_text(path, page("Data inspected", "\n".join(parts), STYLE + added.style))


def _tiles(examination: Examination, further: Sequence[tuple[str, object, str]]) -> str:
    usable = sum(len(instance.targets) for instance in examination.usable)
    refused = len(examination.annotations.problems)
    tiles = [
        ("Images", len(examination.raw.files), f"{len(examination.usable)} usable"),
        ("Boxes", len(examination.raw), f"{usable} usable"),
        ("Refused", refused, "faults of records and objects, which are left out of training and scoring"),
        *further,
    ]
    cells = (f"<div><span>{safe(a)}</span><b>{safe(b)}</b><small>{safe(c)}</small></div>" for a, b, c in tiles)
    return f'<div class="tiles">{"".join(cells)}</div>'


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<p>Nothing wrong was found.</p>"
    rows = [(f.severity, f.code, f.message, f.evidence, f.count, f.fix) for f in findings]
    return f'<div class="findings">{table(("", "code", "fault", "evidence", "records", "fix"), rows)}</div>'


def _images(shown: Sequence[Instance], root: Path) -> str:
    figures = []
    for instance in shown:
        image = decode_image(root / instance.image, at_most=(2 * _SIDE, 2 * _SIDE))
        boxes = [(target.desc, tuple(target.bbox)) for target in instance.targets]
        size = (instance.width or image.width, instance.height or image.height)
        caption = f"{instance.image}: {size[0]} x {size[1]}, {counted(len(boxes), 'object')}"
        figures.append(figure(drawing(instance.image, image, [(boxes, solid(TRUTH))]), caption))
    return image_grid(figures)


def solid(colour: str) -> str:
    """Return the SVG attributes of a solid outline."""
    return f'stroke="{colour}" stroke-width="3"'


def figure(html: str, caption: str, details: str = "") -> str:
    """Return a figure with a caption in plain text; the rest is HTML."""
    return f"<figure>{html}<figcaption>{safe(caption)}</figcaption>{details}</figure>"


def image_grid(figures: Sequence[str]) -> str:
    """Return figures side by side, or a sentence where there are none."""
    return f'<div class="images">{"".join(figures)}</div>' if figures else "<p>No image can be shown.</p>"


def drawing(name: str, image: Image.Image, outlines: Iterable[tuple[Sequence[Named], str]]) -> str:
    """Return an image with boxes as SVG.

    Args:
        name: path of the image
        image: the image
        outlines: boxes, and the SVG attributes of their outlines
    """
    zoom = _SIDE / max(image.size)
    w, h = (max(1, round(side * zoom)) for side in image.size)
    data = _embedded(image.resize((w, h), Image.Resampling.BILINEAR))
    boxes = "".join(_box(named, (w, h), style) for objects, style in outlines for named in objects)
    return (
        f'<svg class="overlay" viewBox="0 0 {w} {h}" role="img" aria-label="{safe(name)}">'
        f'<image width="{w}" height="{h}" href="{data}"/>{boxes}</svg>'
    )


def _embedded(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _box(named: Named, size: tuple[int, int], style: str) -> str:
    desc, (x1, y1, x2, y2) = named
    x, y, w, h = x1 * size[0], y1 * size[1], (x2 - x1) * size[0], (y2 - y1) * size[1]
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="none" {style}>'
        f"<title>{safe(desc)}</title></rect>"
    )


def _pairs(finding: Finding, examination: Examination) -> str:
    """Return the first pairs of a finding side by side, and a list of all others."""
    roots = examination.pair_roots(finding)
    figures = []
    for pair in finding.pairs[:_PAIRS]:
        thumbnails = "".join(_thumbnail(root / name) for root, name in zip(roots, pair, strict=True))
        figures.append(figure(thumbnails, f"{pair[0]} and {pair[1]}"))
    others = finding.pairs[_PAIRS:]
    listed = ""
    if others:
        rows = table(("", ""), others)
        listed = f"<details><summary>{counted(len(others), 'further pair')}</summary>{rows}</details>"
    return f'<div class="pairs">{"".join(figures)}</div>{listed}'


def _thumbnail(path: Path) -> str:
    try:
        image = decode_image(path, at_most=(2 * _SMALL, 2 * _SMALL))
    except ImageError:  # of a large set, images that were not looked at may be missing
        return ""
    image.thumbnail((_SMALL, _SMALL))
    return f'<img src="{_embedded(image)}" alt="{safe(path.name)}"> '


def _classes(examination: Examination) -> str:
    counts = Counter(examination.raw.labels).most_common()
    rows = counts[:_CLASSES]
    further = counted(len(counts) - len(rows), "further class", "further classes")
    remainder = f"<p>{further}.</p>" if len(counts) > len(rows) else ""
    summary = counted(len(counts), "class", "classes")
    return f"<details><summary>{summary}</summary>{table(('class', 'boxes'), rows)}{remainder}</details>"


def _sizes(examination: Examination) -> str:
    scale = CoordGrid().scale
    boxes = [o.bbox for instance in examination.annotations.instances for o in instance.targets]
    sides = [min(b[2] - b[0], b[3] - b[1]) * scale for b in boxes]
    return histogram("Shorter side of the boxes", sides, f"bins of {scale}")


def _counts(examination: Examination) -> str:
    counts = np.bincount(examination.raw.image_N, minlength=len(examination.raw.files)).tolist()
    return histogram("Objects per image", counts, "objects")


def histogram(title: str, values: Sequence[float], unit: str) -> str:
    """Return a histogram as a table with a bar in each row; empty without values.

    Args:
        title: title of the histogram
        values: numbers to count
        unit: what the numbers count
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    if all(float(value).is_integer() for value in values):
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
