"""The lines with the scores of an evaluation, which are printed at its end."""

from __future__ import annotations

from typing import Any

from coord_codec.counts import counted
from coord_eval import Evaluation

LEFT_OUT = "beside the ceiling: "
"""How notes begin that say what the ceiling leaves out."""


def summary(evaluation: Evaluation) -> list[str]:
    """Return the last lines that a run prints."""
    form, shapes = evaluation.format, evaluation.shapes
    share = form["parsed"] / max(form["answers"], 1)
    lines = [shape_line(shapes)] if shapes else []
    if evaluation.has_boxes:
        lines.append(evaluation.brief())
    return [
        *lines,
        f"{share:.1%} of {counted(form['answers'], 'answer')} parsed, {form['truncated']} cut off; "
        f"ranking score: {evaluation.score_source}",
        *(note for note in evaluation.notes if note.startswith(LEFT_OUT)),
    ]


def shape_line(shapes: dict[str, Any]) -> str:
    """Return the line with the scores of shapes other than boxes."""
    ceiling = shapes["ceiling"]
    scores = [f"{name} {shapes[name]:.3f} (ceiling {ceiling[name]:.3f})" for name in shapes if name.startswith("AP")]
    measure = f"{shapes['measure']}; a target's own mean is {ceiling['mean']:.4f}"
    if ceiling["simplified"]:
        measure += f"; {counted(ceiling['simplified'], 'outline is', 'outlines are')} simplified in targets"
    return f"{shapes['geometry']}: {', '.join(scores)}; {measure}"
