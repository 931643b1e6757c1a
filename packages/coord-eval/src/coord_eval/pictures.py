"""Truth and answer drawn over a photograph, as one SVG element.

Shape legend: boxes are ``xywh`` in pixels of the annotated picture.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np

from coord_eval.evaluation import Evaluation
from coord_eval.html_text import safe

#: Longer side of a drawing, in its own units and, times SHARPNESS, in pixels of the photograph.
MAX_SIDE = 480
SHARPNESS = 1.5
_TRUTH, _HIT, _FALSE = "#0f766e", "#2563eb", "#dc2626"


def overlay(evaluation: Evaluation, image: int, root: Path | None = None) -> tuple[str, str | None]:
    """Draw truth and answer over one picture: objects dashed, hits and false boxes in colours of their own.

    Args:
        evaluation: Where the boxes come from.
        image: Index of the image in the ground truth.
        root: Folder of the pictures; None draws on an empty ground.

    Returns:
        The SVG, and why there is no photograph in it, None when there is one.
    """
    truth, matches = evaluation.truth, evaluation.matches
    rows_d = np.nonzero(evaluation.detections.image_D == image)[0]
    width, height = truth.sizes_I2[image].tolist()
    if not truth.sizes_known or not np.isfinite([width, height]).all():
        width = height = 1.0
        if truth.sizes_known:
            width, height = _extent(evaluation, image, rows_d)
    zoom = MAX_SIDE / max(width, height)
    w, h = round(width * zoom), round(height * zoom)
    photograph, problem = _photograph(root, truth.file_names[image], (w, h))
    parts = [
        f'<svg viewBox="0 0 {w} {h}" role="img" aria-label="{safe(truth.file_names[image])}">'
        f'<rect width="{w}" height="{h}" fill="#eef0f3"/>'
    ]
    if photograph:
        parts.append(f'<image width="{w}" height="{h}" href="{photograph}"/>')
    for n in np.nonzero(truth.image_N == image)[0]:
        name = truth.categories[truth.category_N[n]]
        style = f'stroke="{_TRUTH}" stroke-dasharray="{"2 3" if truth.crowd_N[n] else "7 4"}"'
        missed = matches.iou_N[n] < 0.5 and not truth.crowd_N[n]
        tip = f"truth: {name}" + (", missed" if missed else "")
        label = name if missed else ""
        parts.append(
            _box(truth.boxes_N4[n] * zoom, style=style, tip=tip, label=label, colour=_TRUTH, size=(w, h))
        )
    for d in rows_d:
        iou = matches.iou_D[d]
        colour = _HIT if iou >= 0.5 else _FALSE
        name = label_name(evaluation, int(evaluation.detections.category_D[d]))
        tip = f"answer: {name}, IoU {iou:.2f}, score {evaluation.detections.scores_D[d]:.3g}"
        box = evaluation.detections.boxes_D4[d] * zoom
        parts.append(_box(box, style=f'stroke="{colour}"', tip=tip, label=name, colour=colour, size=(w, h)))
    return "".join([*parts, "</svg>"]), problem


def label_name(evaluation: Evaluation, category: int) -> str:
    """Return the name of a category index, unknown labels included."""
    names = evaluation.truth.categories
    return names[category] if category < len(names) else evaluation.detections.unknown[category - len(names)]


def _box(box: np.ndarray, *, style: str, tip: str, label: str, colour: str, size: tuple[int, int]) -> str:
    """Draw one box with its label above it, kept inside the drawing."""
    x, y, w, h = (float(v) for v in box)
    drawn = (
        f'<g><title>{safe(tip)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
        f'fill="none" stroke-width="2" {style}/>'
    )
    if label:
        short = label if len(label) <= 28 else label[:27] + "…"
        # East Asian characters are about twice as wide as Latin ones.
        wide = sum(11.5 if ord(c) > 0x2E7F else 6.6 for c in short) + 8
        left = min(max(x, 0.0), max(size[0] - wide, 0.0))
        top = y - 16 if y >= 16 else min(y, size[1] - 16.0)
        drawn += (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="16" fill="{colour}"/>'
            f'<text x="{left + 4:.1f}" y="{top + 12:.1f}">{safe(short)}</text>'
        )
    return drawn + "</g>"


def _extent(evaluation: Evaluation, image: int, rows_d: np.ndarray) -> tuple[float, float]:
    """Return a canvas that holds all boxes of a picture of unknown size."""
    boxes = np.concatenate(
        [evaluation.truth.boxes_N4[evaluation.truth.image_N == image], evaluation.detections.boxes_D4[rows_d]]
    )
    if not len(boxes):
        return 1.0, 1.0
    right, bottom = (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
    return max(float(right), 1.0), max(float(bottom), 1.0)


def _photograph(root: Path | None, name: str, size: tuple[int, int]) -> tuple[str | None, str | None]:
    """Return the picture as a data URL, or why there is none."""
    path = _find(root, name)
    if path is None:
        return None, f"{name or 'picture without a file name'}: not found"
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        return None, "Pillow is not installed: pip install coord-eval[report]"
    try:
        with Image.open(path) as picture:
            # Boxes refer to the stored pixels: whatever EXIF says about turning them must not be applied.
            pixels = (round(size[0] * SHARPNESS), round(size[1] * SHARPNESS))
            picture.draft("RGB", pixels)
            small = picture.convert("RGB").resize(pixels, Image.Resampling.BILINEAR)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        return None, f"{name}: {error}"
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii"), None


def _find(root: Path | None, name: str) -> Path | None:
    if root is None or not name:
        return None
    for candidate in (root / name, root / "images" / name, root / Path(name).name):
        if candidate.is_file():
            return candidate
    return None
