"""The images that changed most between two runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from coord_codec.pages import Gallery, figure, notes
from coord_eval.page_options import ImageRoot
from coord_eval.report.images import drawn_from, f1_of_images
from coord_eval.report.overlay import Overlays, label_colours, shown_name

if TYPE_CHECKING:
    from coord_eval.metrics.figures import Figures


def changed_images(runs: Mapping[str, Figures], root: ImageRoot | None, most: int = 6) -> str:
    """Show the images whose F1 changed most between two runs, first better ones, then worse ones; empty without any."""
    from_score = {name: drawn_from(evaluation) for name, evaluation in runs.items()}
    f1 = {name: f1_of_images(evaluation, from_score[name]) for name, evaluation in runs.items()}
    before_I, after_I = f1.values()
    change_I = after_I - before_I
    order = np.argsort(-change_I, kind="stable").tolist()
    kinds = {
        "Better": [image for image in order if change_I[image] > 0],
        "Worse": [image for image in order[::-1] if change_I[image] < 0],
    }
    if not any(kinds.values()):
        return ""
    shown, parts = Gallery(expected=4 * most), []
    overlays = {name: Overlays(evaluation, root, shown, from_score[name]) for name, evaluation in runs.items()}
    for title, images in kinds.items():
        parts.append(f"<h3>{title}: {len(images):,}</h3>")
        for image in images[:most]:
            cells = []
            for name, evaluation in runs.items():
                svg = overlays[name].draw(image)
                cells.append(figure(svg, f"{shown_name(evaluation.truth, image)}, {name}: F1 {f1[name][image]:.2f}"))
            parts.append(f'<div class="row">{"".join(cells)}</div>')
    drawn = [f"{name} from a score of {value:.3g} on" for name, value in from_score.items() if value is not None]
    told = [f"drawn, and judged by F1: {', '.join(drawn)}, the best F1 of the whole set"] if drawn else []
    return notes([*shown.notes, *told]) + label_colours(*runs.values()) + "".join(parts)
