"""inspect.html: the findings, sample images with their tokens, and the distributions of classes, sizes and lengths."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from coord_codec import CoordGrid
from coord_codec.files import write_text
from coord_data.inspection.examine import Examination
from coord_data.inspection.finding import Finding
from coord_eval.html import chart, number, page, safe, section, table
from coord_trainer.inspection.shown import ModelView, Named, Shown, Token

_SIDE = 480  # longer side of a drawing, in SVG units
_TRUTH, _DECODED = "#0f766e", "#2563eb"
_CLASSES = 60  # listed at most
_ROLES = {
    "prompt": ("#e8ebef", "prompt, no loss"),
    "image": ("#d9d2ea", "image, no loss"),
    "structure": ("#f2b84b", "structure"),
    "description": ("#5fbf7f", "description"),
    "object": ("#6f9df0", "coordinate"),
    "unlearnt": ("#e9b5ae", "answer, no loss"),
    "beyond": ("#e0605a", "beyond training.max_length"),
}
"""Colour and name of each role; tokens with a loss are drawn paler the smaller their weight is."""
_UNLEARNT = ("prompt", "image", "unlearnt", "beyond")
_STYLE = """
.tokens span { display: inline-block; padding: 0 3px; margin: 1px; border-radius: 3px; white-space: pre-wrap;
  font: 12px ui-monospace, Menlo, Consolas, monospace; color: #1c2430; }
.findings td, .findings th { text-align: left; white-space: normal; padding: 5px 18px 5px 0;
  overflow-wrap: break-word; }
.findings td:nth-child(-n+2) { white-space: nowrap; font-weight: 600; }
"""


def write_page(
    path: Path, examination: Examination, shown: Sequence[Shown], ceilings: Mapping[str, float], view: ModelView | None
) -> None:
    """Write inspect.html.

    Args:
        path: path of the page
        examination: the data set and its findings
        shown: images to draw
        ceilings: AP of the annotations used as predictions, by the name of the ceiling
        view: model inputs and token counts; None without a model
    """
    distributions = [_classes(examination), _sizes(examination), _counts(examination)]
    parts = [
        _tiles(examination, ceilings),
        section("Findings", _findings(examination.findings)),
        section("Images as the model receives them" if view else "Images", _images(shown, view is not None)),
        section("Lengths", _lengths(view)) if view else "",
        section("Classes, sizes, object counts", "".join(distributions)),
    ]
    write_text(path, page("Data inspected", "\n".join(part for part in parts if part), _STYLE))


def _tiles(examination: Examination, ceilings: Mapping[str, float]) -> str:
    usable = sum(len(instance.targets) for instance in examination.annotations.instances)
    refused = len(examination.annotations.problems)
    tiles = [
        ("Images", len(examination.raw.files), f"{len(examination.annotations.instances)} usable"),
        ("Boxes", len(examination.raw), f"{usable} usable"),
        ("Refused", refused, "faults of records and objects, which are left out of training and scoring"),
        *((name, number(ap), "AP of the annotations used as predictions") for name, ap in ceilings.items()),
    ]
    cells = (f"<div><span>{safe(a)}</span><b>{safe(b)}</b><small>{safe(c)}</small></div>" for a, b, c in tiles)
    return f'<div class="tiles">{"".join(cells)}</div>'


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<p>Nothing wrong was found.</p>"
    rows = [(f.severity, f.code, f.message, f.evidence, f.count, f.fix) for f in findings]
    return f'<div class="findings">{table(("", "code", "fault", "evidence", "records", "fix"), rows)}</div>'


def _images(shown: Sequence[Shown], tokens: bool) -> str:
    source = "token ids" if tokens else "target text"
    legend = (
        f'<p class="key"><span><i style="background:{_TRUTH}"></i>annotation</span><span>'
        f'<i style="background:{_DECODED}"></i>parsed from the {source}</span></p>'
    )
    key = "".join(f'<span style="background:{colour}">{name}</span> ' for colour, name in _ROLES.values())
    weights = [t.weight for item in shown for t in item.tokens if t.weight]
    largest = max(weights, default=1.0)
    explanation = (
        f"darker tokens have larger loss weights, here {min(weights, default=0):.3g} to {largest:.3g}; "
        "the tooltip of each token states its weight"
    )
    legend += f'<p class="tokens">{key}; {explanation}</p>' if tokens else ""
    figures = []
    for item in shown:
        deviation = "an object is missing" if item.off_by is None else f"at most {item.off_by:.2f} px apart"
        origin = "augmented as in the first epoch," if item.augmented else "file"
        (w, h), (width, height) = item.image.size, item.size
        caption = f"{item.name}: {w} x {h} shown, {origin} {width} x {height}; {deviation}"
        answer = _tokens(item.tokens, largest) if item.tokens else f"<pre>{safe(item.text)}</pre>"
        details = f"<details><summary>{len(item.truth)} objects: prompt and answer</summary>{answer}</details>"
        figures.append(f"<figure>{_drawing(item)}<figcaption>{safe(caption)}</figcaption>{details}</figure>")
    return legend + f'<div class="images">{"".join(figures)}</div>' if figures else "<p>No image can be shown.</p>"


def _tokens(tokens: Sequence[Token], largest: float) -> str:
    spans = (
        f'<span style="background:{_colour(t, largest)}" '
        f'title="{safe(t.role)}, weight {t.weight:.3g}">{safe(t.text)}</span>'
        for t in tokens
    )
    return f'<div class="tokens">{"".join(spans)}</div>'


def _colour(token: Token, largest: float) -> str:
    """Return the colour of the token's role; its opacity grows from a quarter to 1 with the weight of the token."""
    colour = _ROLES[token.role.split()[0]][0]
    if not token.weight:
        return colour if token.role in _UNLEARNT else f"{colour}26"
    return f"{colour}{round(255 * (0.25 + 0.75 * token.weight / largest)):02x}"


def _drawing(item: Shown) -> str:
    zoom = _SIDE / max(item.image.size)
    w, h = (max(1, round(side * zoom)) for side in item.image.size)
    buffer = io.BytesIO()
    item.image.resize((w, h), Image.Resampling.BILINEAR).save(buffer, "JPEG", quality=85)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    boxes = [_box(named, (w, h), f'stroke="{_TRUTH}" stroke-width="3"') for named in item.truth]
    boxes += [_box(named, (w, h), f'stroke="{_DECODED}" stroke-dasharray="5 3"') for named in item.decoded]
    return (
        f'<svg class="overlay" viewBox="0 0 {w} {h}" role="img" aria-label="{safe(item.name)}">'
        f'<image width="{w}" height="{h}" href="data:image/jpeg;base64,{data}"/>{"".join(boxes)}</svg>'
    )


def _box(named: Named, size: tuple[int, int], style: str) -> str:
    desc, (x1, y1, x2, y2) = named
    x, y, w, h = x1 * size[0], y1 * size[1], (x2 - x1) * size[0], (y2 - y1) * size[1]
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="none" {style}>'
        f"<title>{safe(desc)}</title></rect>"
    )


def _lengths(view: ModelView) -> str:
    too_long = sum(length > view.limit for length in view.lengths)
    summary = (
        f"<p>{len(view.lengths)} samples of {min(view.lengths, default=0)} to {max(view.lengths, default=0)} tokens; "
        f"training.max_length is {view.limit}: {too_long} are longer and would be truncated or refused.</p>"
    )
    return summary + _histogram("Tokens per sample", view.lengths, "tokens")


def _classes(examination: Examination) -> str:
    counts = Counter(examination.raw.labels).most_common()
    rows = counts[:_CLASSES]
    remainder = f"<p>{len(counts) - len(rows)} further classes.</p>" if len(counts) > len(rows) else ""
    return f"<details><summary>{len(counts)} classes</summary>{table(('class', 'boxes'), rows)}{remainder}</details>"


def _sizes(examination: Examination) -> str:
    scale = CoordGrid().scale
    boxes = [o.bbox for instance in examination.annotations.instances for o in instance.targets]
    sides = [min(b[2] - b[0], b[3] - b[1]) * scale for b in boxes]
    return _histogram("Shorter side of the boxes", sides, f"bins of {scale}")


def _counts(examination: Examination) -> str:
    counts = np.bincount(examination.raw.image_N, minlength=len(examination.raw.files)).tolist()
    return _histogram("Objects per image", counts, "objects")


def _histogram(title: str, values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    if high - low < 1e-6 * max(1.0, abs(high)):  # equal but for rounding: NumPy finds no room for bins between them
        low, high = low - 0.5, high + 0.5
    with chart(title, width=374, height=190) as drawn:
        drawn.axes.hist(values, bins=min(40, max(5, len(set(values)))), range=(low, high))
        drawn.axes.set(title=title, xlabel=unit)
    return f"<figure>{drawn.svg}</figure>"
