"""The report: one HTML file without scripts or outside references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coord_eval.evaluation import Evaluation
from coord_eval.html_text import safe
from coord_eval.image_scores import image_table
from coord_eval.pictures import overlay
from coord_eval.ranking import SCORE_SOURCES
from coord_eval.report_analysis import analysis_sections
from coord_eval.report_style import page
from coord_eval.report_tables import number, section, table

_COCO_NAMES = {
    "AP": "AP, IoU .50:.95",
    "AP50": "AP at IoU .50",
    "AP75": "AP at IoU .75",
    "APs": "AP, small objects (below 32² pixels)",
    "APm": "AP, medium objects",
    "APl": "AP, large objects (above 96² pixels)",
    "AR1": "AR, 1 box of a label and picture",
    "AR10": "AR, 10 boxes of a label and picture",
    "AR100": "AR, 100 boxes of a label and picture",
    "ARs": "AR, small objects",
    "ARm": "AR, medium objects",
    "ARl": "AR, large objects",
}
_MAX_CLASSES = 100
_LINES = "\n\t"


@dataclass(frozen=True)
class ReportSection:
    """A part that a caller adds to the report.

    Attributes:
        title: Heading, plain text.
        html: Content, taken as it is: the caller escapes it and refers to nothing outside the file.
    """

    title: str
    html: str


def render_report(
    evaluation: Evaluation,
    *,
    image_root: str | Path | None = None,
    title: str | None = None,
    sections: Sequence[ReportSection] = (),
    max_overlays: int = 12,
) -> str:
    """Return the report as HTML; see :meth:`Evaluation.write_report`."""
    root = Path(image_root) if image_root is not None else evaluation.truth.root
    parts = [
        _tiles(evaluation),
        _notes(evaluation.notes),
        *(section(part.title, part.html) for part in sections),
        section("Average precision and recall (COCO)", _coco_table(evaluation)),
        section("Precision and recall without scores", _detection_table(evaluation)),
        section("Format health", _format_tables(evaluation)),
        *analysis_sections(evaluation),
        section("Pictures", _pictures(evaluation, root, max_overlays)) if max_overlays > 0 else "",
        section("Classes", _class_table(evaluation)) if evaluation.per_class else "",
    ]
    return page(title or "Evaluation", "\n".join(part for part in parts if part))


def _tiles(evaluation: Evaluation) -> str:
    """The handful of numbers that a reader looks for first."""
    health = evaluation.format
    tiles = [
        ("AP", number(evaluation.coco["AP"]), f"ceiling {number(evaluation.ceiling.get('AP', -1))}"),
        ("AP50", number(evaluation.coco["AP50"]), f"ceiling {number(evaluation.ceiling.get('AP50', -1))}"),
        ("F1 at IoU .50", number(evaluation.detection["0.5"]["f1"]), "no score enters"),
        ("Mean IoU", number(evaluation.mean_iou), "over objects, missed ones 0"),
    ]
    if health["answers"]:
        share = 100 * health["parsed"] / health["answers"]
        tiles.append(("Answers that parse", f"{share:.1f} %", f"{health['parsed']} of {health['answers']}"))
    cells = (
        f"<div><span>{safe(name)}</span><b>{safe(value)}</b><small>{safe(below)}</small></div>"
        for name, value, below in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return '<ul class="notes">' + "".join(f"<li>{safe(note)}</li>" for note in notes) + "</ul>"


def _coco_table(evaluation: Evaluation) -> str:
    source = evaluation.score_source
    rows = [
        (
            name,
            number(evaluation.coco[key]),
            number(evaluation.coco_constant_score[key]),
            number(evaluation.coco_class_agnostic[key]),
            number(evaluation.ceiling.get(key, -1)),
        )
        for key, name in _COCO_NAMES.items()
    ]
    return (
        f"<p>Ranked by <b>{safe(source)}</b>: {safe(SCORE_SOURCES[source])}. The ceiling is the truth "
        f"itself, encoded and parsed back, under a constant score. Any label: all labels taken as one. "
        f"By {safe(evaluation.backend)}.</p>"
        + table(("", "ranked", "constant score", "ranked, any label", "ceiling"), rows)
    )


def _detection_table(evaluation: Evaluation) -> str:
    keys = ("precision", "recall", "f1")
    rows = []
    for threshold, row in evaluation.detection.items():
        free = evaluation.detection_class_agnostic[threshold]
        rows.append((threshold, *(number(row[k]) for k in keys), *(number(free[k]) for k in keys)))
    head = ("IoU", "precision", "recall", "F1", "precision, any label", "recall, any label", "F1, any label")
    iou = f"{number(evaluation.mean_iou)}, {number(evaluation.mean_iou_class_agnostic)} for any label"
    return table(head, rows) + f"<p>Mean IoU over objects: {iou}.</p>"


def _format_tables(evaluation: Evaluation) -> str:
    health, counts = evaluation.format, evaluation.counts
    join = evaluation.join
    rows = [
        ("pictures", counts["images"]),
        ("pictures with an answer", join.answered),
        ("answers about unknown pictures, left out", join.unknown),
        ("true objects", counts["objects"]),
        ("crowd regions, neither hit nor missed", counts["crowd_regions"]),
        ("boxes answered", counts["detections"]),
        ("boxes with unknown labels, counted as false", counts["unknown_label_detections"]),
    ]
    html = '<div class="columns">' + table(("", "count"), rows)
    if health["answers"]:
        rows = [(key, health[key]) for key in ("answers", "parsed", "clean", "truncated", "empty", "repeats")]
        rows += [(f"{kind} objects", n) for kind, n in health["completeness"].items()]
        rows += [(f"format {name}", n) for name, n in health["formats"].items()]
        html += table(("answers", "count"), rows)
        dropped = [(reason.replace("_", " "), n) for reason, n in health["dropped"].items()]
        html += table(("dropped because of", "count"), dropped or [("nothing dropped", 0)])
    unknown = list(evaluation.unknown_labels.items())[:15]
    if unknown:
        html += table(("unknown labels", "count"), unknown)
    return html + "</div>"


def _class_table(evaluation: Evaluation) -> str:
    ranked = sorted(evaluation.per_class.items(), key=lambda item: -item[1]["objects"])
    rows = [
        (name, row["objects"], row["detections"], number(row["AP"]), number(row["AP50"]))
        for name, row in ranked[:_MAX_CLASSES]
    ]
    rest = len(ranked) - len(rows)
    more = f"<p>{rest} further classes are in evaluation.json.</p>" if rest else ""
    return table(("class", "objects", "boxes answered", "AP", "AP50"), rows) + more


def _pictures(evaluation: Evaluation, root: Path | None, limit: int) -> str:
    f1_I = np.array([row["f1"] for row in image_table(evaluation)])
    order = np.argsort(f1_I, kind="stable")
    if len(order) > limit:
        half = limit // 2
        order = np.concatenate([order[: limit - half], order[len(order) - half :]])
    figures, problems = [], []
    for image in order.tolist():
        svg, problem = overlay(evaluation, image, root)
        problems += [problem] if problem else []
        name = evaluation.truth.file_names[image] or str(evaluation.truth.image_ids[image])
        text = evaluation.answers.get(image, (None,))[0]
        answer = (
            f"<details><summary>answer</summary><pre>{safe(text, keep=_LINES)}</pre></details>"
            if text
            else ""
        )
        figures.append(
            f"<figure>{svg}<figcaption>{safe(name)}: F1 {f1_I[image]:.2f}</figcaption>{answer}</figure>"
        )
    legend = (
        '<p class="legend"><i class="truth"></i>truth <i class="hit"></i>answer, IoU ≥ .50 with its label '
        '<i class="false"></i>answer, false. Worst pictures first.</p>'
    )
    distinct = list(dict.fromkeys(problems))
    return legend + _notes(distinct[:5]) + f'<div class="pictures">{"".join(figures)}</div>'
