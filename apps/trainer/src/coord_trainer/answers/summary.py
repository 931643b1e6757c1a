"""The lines with the scores of an evaluation, which are printed at its end."""

from __future__ import annotations

from typing import Any

from coord_codec import geometry_of
from coord_eval import Evaluation

LEFT_OUT = "beside the ceiling: "
"""How notes begin that say what the ceiling leaves out."""


def summary(evaluation: Evaluation) -> list[str]:
    """Return the last lines that a run prints."""
    values = evaluation.to_dict()
    coco, ceiling, form = values["coco"], values["ceiling"], values["format"]
    share = form["parsed"] / max(form["answers"], 1)
    lines = [shape_line(values["shapes"])] if "shapes" in values else []
    if "shapes" not in values or geometry_of(values["shapes"]["geometry"]).has_extent:
        around = "of the boxes around: " * bool(lines)
        lines.append(
            f"{around}AP {coco['AP']:.3f} (quantisation ceiling {ceiling['AP']:.3f})   AP50 {coco['AP50']:.3f}   "
            f"mean IoU {values['mean_iou']:.3f}"
        )
    return [
        *lines,
        f"{share:.1%} of {form['answers']} answers parse, {form['truncated']} were cut off; "
        f"ranking score: {values['score_source']}",
        *(note for note in evaluation.notes if note.startswith(LEFT_OUT)),
    ]


def shape_line(shapes: dict[str, Any]) -> str:
    """Return the line with the scores of shapes other than boxes."""
    ceiling = shapes["ceiling"]
    scores = [f"{name} {shapes[name]:.3f} (ceiling {ceiling[name]:.3f})" for name in shapes if name.startswith("AP")]
    simplified = f"; {ceiling['simplified']} outlines are simplified in targets" * bool(ceiling["simplified"])
    measure = f"{shapes['measure']}; a target's own mean is {ceiling['mean']:.4f}{simplified}"
    return f"{shapes['geometry']}: {', '.join(scores)}; {measure}"
