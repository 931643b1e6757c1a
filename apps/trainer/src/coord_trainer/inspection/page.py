"""inspect.html: the findings, what the model is given of some images, and how classes, sizes and lengths are spread."""

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
from coord_eval.html import chart, number, page, safe, section, table
from coord_trainer.inspection.examine import Examination
from coord_trainer.inspection.numbers.findings import Finding
from coord_trainer.inspection.shown import ModelView, Named, Shown, Token

_SIDE = 480  # of a drawing, in its own units
_TRUTH, _SAID = "#0f766e", "#2563eb"
_CLASSES = 60
_ROLES = {
    "prompt": ("#e8ebef", "prompt, not learnt"),
    "image": ("#d9d2ea", "image, not learnt"),
    "structure": ("#f2b84b", "structure"),
    "description": ("#5fbf7f", "description"),
    "object": ("#6f9df0", "coordinate"),
    "unlearnt": ("#e9b5ae", "answer, not learnt"),
    "beyond": ("#e0605a", "beyond training.max_length"),
}
"""Colour and name of each role; learnt tokens have it the paler, the less they weigh."""
_UNLEARNT = ("prompt", "image", "unlearnt", "beyond")
_STYLE = """
.tokens span { display: inline-block; padding: 0 3px; margin: 1px; border-radius: 3px; white-space: pre-wrap;
  font: 12px ui-monospace, Menlo, Consolas, monospace; color: #1c2430; }
.findings td, .findings th { text-align: left; white-space: normal; padding: 5px 18px 5px 0;
  overflow-wrap: break-word; }
.findings td:nth-child(-n+2) { white-space: nowrap; font-weight: 600; }
"""


def write_page(
    path: Path, found: Examination, shown: Sequence[Shown], ceilings: Mapping[str, float], view: ModelView | None
) -> None:
    """Write the page.

    Args:
        path: of the file
        found: the findings and the set
        shown: images to draw
        ceilings: AP of the annotations themselves, by what they are scored against
        view: what only a model can tell
    """
    spread = [_classes(found), _sizes(found), _counts(found)]
    parts = [
        _tiles(found, ceilings),
        section("Findings", _findings(found.findings)),
        section("Images as the model is given them" if view else "Images", _images(shown, view is not None)),
        section("Lengths", _lengths(view)) if view else "",
        section("Classes, sizes, numbers", "".join(spread)),
    ]
    write_text(path, page("Data inspected", "\n".join(part for part in parts if part), _STYLE))


def _tiles(found: Examination, ceilings: Mapping[str, float]) -> str:
    usable = sum(len(instance.targets) for instance in found.annotations.instances)
    refused = len(found.annotations.problems)
    tiles = [
        ("Images", len(found.raw.files), f"{len(found.annotations.instances)} usable"),
        ("Boxes", len(found.raw), f"{usable} usable"),
        ("Refused", refused, "faults of records and objects, which are left out of training and scoring"),
        *((name, number(ap), "AP of the annotations themselves") for name, ap in ceilings.items()),
    ]
    cells = (f"<div><span>{safe(a)}</span><b>{safe(b)}</b><small>{safe(c)}</small></div>" for a, b, c in tiles)
    return f'<div class="tiles">{"".join(cells)}</div>'


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<p>Nothing wrong was found.</p>"
    rows = [(f.severity, f.code, f.message, f.evidence, f.count, f.fix) for f in findings]
    return f'<div class="findings">{table(("", "code", "what", "evidence", "records", "what mends it"), rows)}</div>'


def _images(shown: Sequence[Shown], tokens: bool) -> str:
    source = "token ids" if tokens else "target text"
    legend = (
        f'<p class="key"><span><i style="background:{_TRUTH}"></i>annotation</span><span>'
        f'<i style="background:{_SAID}"></i>read back from the {source}</span></p>'
    )
    key = "".join(f'<span style="background:{colour}">{name}</span> ' for colour, name in _ROLES.values())
    weights = [t.weight for one in shown for t in one.tokens if t.weight]
    heaviest = max(weights, default=1.0)
    told = (
        f"the darker, the heavier: loss weights {min(weights, default=0):.3g} to {heaviest:.3g}, "
        "in the tooltip of each token"
    )
    legend += f'<p class="tokens">{key}; {told}</p>' if tokens else ""
    figures = []
    for one in shown:
        off = "an object is missing" if one.off_by is None else f"at most {one.off_by:.2f} px apart"
        of = "augmented as in the first epoch," if one.augmented else "file"
        caption = f"{one.name}: {one.image.width} x {one.image.height} shown, {of} {one.size[0]} x {one.size[1]}; {off}"
        answer = _tokens(one.tokens, heaviest) if one.tokens else f"<pre>{safe(one.text)}</pre>"
        more = f"<details><summary>{len(one.truth)} objects: prompt and answer</summary>{answer}</details>"
        figures.append(f"<figure>{_drawing(one)}<figcaption>{safe(caption)}</figcaption>{more}</figure>")
    return legend + f'<div class="images">{"".join(figures)}</div>' if figures else "<p>No image can be shown.</p>"


def _tokens(tokens: Sequence[Token], heaviest: float) -> str:
    spans = (
        f'<span style="background:{_colour(t, heaviest)}" '
        f'title="{safe(t.role)}, weight {t.weight:.3g}">{safe(t.text)}</span>'
        for t in tokens
    )
    return f'<div class="tokens">{"".join(spans)}</div>'


def _colour(token: Token, heaviest: float) -> str:
    """Return the colour of its role, mixed with white: a quarter of it for a weight near 0, all for the heaviest."""
    colour = _ROLES[token.role.split()[0]][0]
    if not token.weight:
        return colour if token.role in _UNLEARNT else f"{colour}26"
    return f"{colour}{round(255 * (0.25 + 0.75 * token.weight / heaviest)):02x}"


def _drawing(one: Shown) -> str:
    zoom = _SIDE / max(one.image.size)
    w, h = round(one.image.width * zoom), round(one.image.height * zoom)
    buffer = io.BytesIO()
    one.image.resize((w, h), Image.Resampling.BILINEAR).save(buffer, "JPEG", quality=85)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    boxes = [_box(named, (w, h), f'stroke="{_TRUTH}" stroke-width="3"') for named in one.truth]
    boxes += [_box(named, (w, h), f'stroke="{_SAID}" stroke-dasharray="5 3"') for named in one.said]
    return (
        f'<svg class="overlay" viewBox="0 0 {w} {h}" role="img" aria-label="{safe(one.name)}">'
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
    cut = sum(length > view.limit for length in view.lengths)
    told = (
        f"<p>{len(view.lengths)} samples of {min(view.lengths, default=0)} to {max(view.lengths, default=0)} tokens; "
        f"training.max_length is {view.limit}: {cut} are longer and would be cut or refused.</p>"
    )
    return told + _histogram("Tokens of a sample", view.lengths, "tokens")


def _classes(found: Examination) -> str:
    counts = Counter(found.raw.labels).most_common()
    rows = [(name, count) for name, count in counts[:_CLASSES]]
    more = f"<p>{len(counts) - len(rows)} further classes.</p>" if len(counts) > len(rows) else ""
    return f"<details><summary>{len(counts)} classes</summary>{table(('class', 'boxes'), rows)}{more}</details>"


def _sizes(found: Examination) -> str:
    scale = CoordGrid().scale
    boxes = [o.bbox for instance in found.annotations.instances for o in instance.targets]
    sides = [min(b[2] - b[0], b[3] - b[1]) * scale for b in boxes]
    return _histogram("Shorter side of the boxes", sides, f"bins of {scale}")


def _counts(found: Examination) -> str:
    counts = np.bincount(found.raw.image_N, minlength=len(found.raw.files)).tolist()
    return _histogram("Objects of an image", counts, "objects")


def _histogram(title: str, values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    with chart(title, width=374, height=190) as drawn:
        drawn.axes.hist(values, bins=min(40, max(5, len(set(values)))))
        drawn.axes.set(title=title, xlabel=unit)
    return f"<figure>{drawn.svg}</figure>"
