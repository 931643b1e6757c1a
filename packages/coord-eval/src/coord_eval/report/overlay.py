"""Draws ground truth and answers over their image."""

from __future__ import annotations

import numpy as np

from coord_codec import geometry_of
from coord_codec.html import outline_svg, safe
from coord_eval.matching import Scored
from coord_eval.report.photograph import ImageRoot, photograph

MAX_SIDE = 480
"""Longer side of a drawing, in units of the SVG."""
LEGEND = (
    '<i class="truth"></i>ground truth <i class="hit"></i>answer, IoU ≥ .50 with an object of its label '
    '<i class="false"></i>answer, false'
)
"""HTML that explains the colours, for a paragraph of the CSS class `legend`."""
_LONGEST_NAME = 120
_TRUTH, _HIT, _FALSE = "#0f766e", "#2563eb", "#dc2626"


def overlay(evaluation: Scored, image: int, root: ImageRoot | None = None) -> tuple[str, str | None]:
    """Draw ground truth and answer over one image: objects dashed, hits and false boxes in different colours.

    Args:
        evaluation: the scored answers
        image: index of the image in the ground truth
        root: folder of the images, or a function from their names to their files; None draws on an empty background

    Returns:
        The SVG, and the reason why it does not contain the image, None if it does.
    """
    svg, problem = draw(evaluation, image, root)
    return svg, problem and f"{shown_name(evaluation, image)}: {problem}"


def shown_name(evaluation: Scored, image: int) -> str:
    """Return the file name of an image for display: shortened, and without the folders of an absolute path."""
    name = evaluation.truth.file_names[image].replace("\\", "/") or str(evaluation.truth.image_ids[image])
    if name.startswith("/") or ":/" in name[:3] or ".." in name.split("/"):
        name = name.rpartition("/")[2]
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2]}…{name[-_LONGEST_NAME // 2 :]}"


def draw(evaluation: Scored, image: int, root: ImageRoot | None) -> tuple[str, str | None]:
    """Draw like `overlay`; the reason does not contain the name of the image."""
    truth, detections, matches = evaluation.truth, evaluation.detections, evaluation.matches
    objects_n, rows_d = np.nonzero(truth.image_N == image)[0], np.nonzero(detections.image_D == image)[0]
    width, height = _size(evaluation, image, objects_n, rows_d)
    zoom = MAX_SIDE / max(width, height)
    w, h = max(round(width * zoom), 1), max(round(height * zoom), 1)
    data, problem = photograph(root, truth.file_names[image], (w, h))
    parts = [
        f'<svg class="overlay" viewBox="0 0 {w} {h}" role="img" aria-label="{safe(shown_name(evaluation, image))}">'
        f'<rect width="{w}" height="{h}" fill="#eef0f3"/>'
    ]
    if data:
        parts.append(f'<image width="{w}" height="{h}" href="{data}"/>')
    pairs = evaluation.shape_pairs
    # Shapes are matched at a threshold of their own measure, so that every matched shape is a hit.
    hit_D = matches.iou_D >= 0.5 if pairs is None else pairs.similarity_D > 0
    hit_N = matches.iou_N >= 0.5 if pairs is None else pairs.similarity_N > 0
    kind = next((geometry_of(shape.type) for shape in truth.shapes or () if shape is not None), geometry_of("box"))
    for n in objects_n:
        name = truth.categories[truth.category_N[n]]
        style = f'stroke="{_TRUTH}" stroke-dasharray="{"2 3" if truth.crowd_N[n] else "7 4"}"'
        missed = not hit_N[n] and not truth.crowd_N[n]
        tip = f"ground truth: {name}" + (", missed" if missed else "")
        label = name if missed else ""
        box, shape = truth.boxes_N4[n] * zoom, truth.shapes[n] if truth.shapes else None
        points = [(x * w, y * h) for x, y in kind.outline(shape.coordinates)] if shape else []
        outline = outline_svg(points, kind) if shape else ""
        parts.append(_box(box, style=style, tip=tip, label=label, colour=_TRUTH, size=(w, h), outline=outline))
    names = [*truth.categories, *detections.unknown]
    for d in rows_d:
        name, colour = names[detections.category_D[d]], _HIT if hit_D[d] else _FALSE
        fits = f"IoU {matches.iou_D[d]:.2f}" if pairs is None else f"similarity {pairs.similarity_D[d]:.2f}"
        tip = f"answer: {name}, {fits}, score {detections.scores_D[d]:.3g}"
        box = detections.boxes_D4[d] * zoom
        points = [(x * zoom, y * zoom) for x, y in detections.shapes[d]] if detections.shapes else []
        outline, style = outline_svg(points, kind) if points else "", f'stroke="{colour}"'
        parts.append(_box(box, style=style, tip=tip, label=name, colour=colour, size=(w, h), outline=outline))
    return "".join([*parts, "</svg>"]), problem


def _size(evaluation: Scored, image: int, objects_n: np.ndarray, rows_d: np.ndarray) -> tuple[float, float]:
    """Return width and height of an image; if they are unknown, the extent of its boxes."""
    truth = evaluation.truth
    width, height = truth.sizes_I2[image].tolist()
    if not truth.sizes_known:
        return 1.0, 1.0
    if np.isfinite([width, height]).all():
        return width, height
    boxes = np.concatenate([truth.boxes_N4[objects_n], evaluation.detections.boxes_D4[rows_d]])
    right, bottom = (boxes[:, :2] + boxes[:, 2:]).max(axis=0, initial=1.0)
    return float(right), float(bottom)


def _box(
    box: np.ndarray, *, style: str, tip: str, label: str, colour: str, size: tuple[int, int], outline: str = ""
) -> str:
    """Draw a box, or `outline` instead, with its label above it and inside the drawing."""
    x, y, w, h = (float(v) for v in box)
    outline = outline or f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"'
    drawn = f'<g><title>{safe(tip)}</title>{outline} fill="none" stroke-width="2" {style}/>'
    if label:
        shown_label = label if len(label) <= 28 else label[:27] + "…"
        # East Asian characters are about twice as wide as Latin ones.
        label_width = sum(11.5 if ord(c) > 0x2E7F else 6.6 for c in shown_label) + 8
        left = min(max(x, 0.0), max(size[0] - label_width, 0.0))
        top = y - 16 if y >= 16 else min(y, size[1] - 16.0)
        drawn += (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{label_width:.1f}" height="16" fill="{colour}"/>'
            f'<text x="{left + 4:.1f}" y="{top + 12:.1f}">{safe(shown_label)}</text>'
        )
    return drawn + "</g>"
