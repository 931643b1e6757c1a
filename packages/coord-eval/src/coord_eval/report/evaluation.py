"""The report of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import geometry_of
from coord_codec.files import write_text
from coord_codec.html import columns, number, page, safe, section, table
from coord_eval.intake.ranking import SCORE_SOURCES
from coord_eval.metrics.detection import image_table
from coord_eval.metrics.evaluation import EvaluationData
from coord_eval.report.analysis import analysis_sections
from coord_eval.report.page import LEGEND, draw, shown_name
from coord_eval.report.photograph import ImageRoot

_COCO_NAMES = {
    "AP": "AP, IoU .50:.95",
    "AP50": "AP at IoU .50",
    "AP75": "AP at IoU .75",
    "APs": "AP, small objects (below 32² pixels)",
    "APm": "AP, medium objects",
    "APl": "AP, large objects (above 96² pixels)",
    "AR1": "AR, 1 box of a label and image",
    "AR10": "AR, 10 boxes of a label and image",
    "AR100": "AR, 100 boxes of a label and image",
    "ARs": "AR, small objects",
    "ARm": "AR, medium objects",
    "ARl": "AR, large objects",
}
_MAX_CLASSES = 100


@dataclass(frozen=True)
class ReportSection:
    """A section that a caller adds to the report.

    Attributes:
        title: heading, plain text
        html: content, inserted unescaped: the caller must escape it and embed all resources
    """

    title: str
    html: str


def write_report(
    evaluation: EvaluationData,
    folder: str | Path,
    *,
    image_root: str | ImageRoot | None = None,
    title: str | None = None,
    sections: Sequence[ReportSection] = (),
    max_overlays: int = 12,
) -> Path:
    """Write `evaluation.json` and `report.html`; see `Evaluation.write_report`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    root: ImageRoot | None = Path(image_root) if isinstance(image_root, str) else image_root or evaluation.truth.root
    parts = [
        _tiles(evaluation),
        _notes(evaluation.notes),
        *(section(part.title, part.html) for part in sections),
        section("Shapes", _shape_table(evaluation.shapes)) if evaluation.shapes else "",
        *_box_sections(evaluation),
        section("Answers: parsing and format", _format_tables(evaluation)),
        *(analysis_sections(evaluation) if has_boxes(evaluation) else []),
        section("Images", _images(evaluation, root, max_overlays)) if max_overlays > 0 else "",
        section("Classes", _class_table(evaluation)) if evaluation.per_class and has_boxes(evaluation) else "",
    ]
    html = page(title or "Evaluation", "\n".join(part for part in parts if part))
    write_text(folder / "evaluation.json", evaluation.to_json())
    write_text(folder / "report.html", html)
    return folder / "report.html"


def has_boxes(evaluation: EvaluationData) -> bool:
    """Return whether scores of boxes are meaningful, which they are not for the boxes around points."""
    return not evaluation.shapes or geometry_of(evaluation.shapes["geometry"]).has_extent


def _box_sections(evaluation: EvaluationData) -> list[str]:
    if not has_boxes(evaluation):
        return []
    return [
        section("Average precision and recall (COCO)", _coco_table(evaluation)),
        section("Precision, recall and F1 (no scores)", _detection_table(evaluation)),
    ]


def _tiles(evaluation: EvaluationData) -> str:
    """Return the headline numbers at the top of the report."""
    health = evaluation.format
    coco, ceiling = evaluation.coco, evaluation.ceiling
    shapes = evaluation.shapes
    tiles = [
        (f"{k} of shapes", number(shapes[k]), f"ceiling {number(shapes['ceiling'][k])}") for k in _ap_names(shapes)[:2]
    ]
    if has_boxes(evaluation):
        suffix = " of boxes around" * bool(shapes)
        tiles += [
            *((key + suffix, number(coco[key]), f"ceiling {number(ceiling.get(key, -1))}") for key in ("AP", "AP50")),
            ("F1 at IoU .50", number(evaluation.detection["0.5"]["f1"]), "without scores"),
            ("Mean IoU", number(evaluation.mean_iou), "over objects, 0 for missed ones"),
        ]
    if health["answers"]:
        share = 100 * health["parsed"] / health["answers"]
        tiles.append(("Answers parsed", f"{share:.1f} %", f"{health['parsed']} of {health['answers']}"))
    cells = (
        f"<div><span>{safe(name)}</span><b>{safe(value)}</b><small>{safe(below)}</small></div>"
        for name, value, below in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{safe(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _shape_table(shapes: Mapping[str, Any]) -> str:
    """Return the scores of shapes other than boxes, and their ceiling."""
    ceiling = shapes["ceiling"]
    names = {"AP": "AP", "mean": "mean similarity over objects, 0 for missed ones"}
    rows = [
        (names.get(name, name), number(shapes[name]), number(ceiling[name])) for name in (*_ap_names(shapes), "mean")
    ]
    text = (
        f"<p>{shapes['objects']} objects of the geometry {safe(shapes['geometry'])}, compared by "
        f"{safe(shapes['measure'])}. Ceiling: the ground truth itself, encoded as a target text, with "
        f"{ceiling['simplified']} outlines simplified."
    )
    has_extent = geometry_of(shapes["geometry"]).has_extent
    note = " The sections below are about the bounding boxes of the shapes." if has_extent else ""
    return f"{text}{note}</p>{table(('', 'score', 'ceiling'), rows)}"


def _ap_names(shapes: Mapping[str, Any]) -> list[str]:
    return [name for name in shapes if name.startswith("AP")]


def _coco_table(evaluation: EvaluationData) -> str:
    source = evaluation.score_source
    kinds = (evaluation.coco, evaluation.coco_constant_score, evaluation.coco_class_agnostic, evaluation.ceiling)
    rows = [(name, *(number(kind.get(key, -1)) for kind in kinds)) for key, name in _COCO_NAMES.items()]
    return (
        f"<p>Sorted by <b>{safe(source)}</b>: {safe(SCORE_SOURCES[source])}. Ceiling: the ground truth itself, encoded "
        f"and parsed back, with all scores set to 1. Any label: all labels replaced by one. Backend: "
        f"{safe(evaluation.backend)}.</p>" + table(("", "scores", "all scores 1", "any label", "ceiling"), rows)
    )


def _detection_table(evaluation: EvaluationData) -> str:
    keys = ("precision", "recall", "f1")
    both = (evaluation.detection, evaluation.detection_class_agnostic)
    rows = [(t, *(number(rates[t][key]) for rates in both for key in keys)) for t in evaluation.detection]
    head = ("IoU", "precision", "recall", "F1", "precision, any label", "recall, any label", "F1, any label")
    iou = f"{number(evaluation.mean_iou)}, {number(evaluation.mean_iou_class_agnostic)} for any label"
    return table(head, rows) + f"<p>Mean IoU over objects: {iou}.</p>"


def _format_tables(evaluation: EvaluationData) -> str:
    health, counts, join = evaluation.format, evaluation.counts, evaluation.join
    rows = [
        ("images", counts["images"]),
        ("images with an answer", join.answered),
        ("images without an answer", join.images - join.answered),
        ("answers about unknown images, left out", join.unknown),
        ("ground-truth objects", counts["objects"]),
        ("crowd regions, neither hit nor missed", counts["crowd_regions"]),
        ("predicted boxes", counts["detections"]),
        ("boxes with unknown labels, counted as false", counts["unknown_label_detections"]),
    ]
    tables = [table(("", "count"), rows)]
    if health["answers"]:
        rows = [(key, health[key]) for key in ("answers", "parsed", "clean", "truncated", "empty", "repeats")]
        rows += [(f"{kind} objects", n) for kind, n in health["completeness"].items()]
        rows += [(f"format {name}", n) for name, n in health["formats"].items()]
        dropped = [(reason.replace("_", " "), n) for reason, n in health["dropped"].items()]
        tables.append(table(("answers", "count"), rows))
        tables.append(table(("reason for dropping", "count"), dropped or [("nothing dropped", 0)]))
    if unknown := list(evaluation.unknown_labels.items())[:15]:
        tables.append(table(("unknown labels", "count"), [(name.strip() or "(no label)", n) for name, n in unknown]))
    return columns(*tables)


def _class_table(evaluation: EvaluationData) -> str:
    ranked = sorted(evaluation.per_class.items(), key=lambda item: -item[1]["objects"])
    rows = [
        (name, row["objects"], row["detections"], number(row["AP"]), number(row["AP50"]))
        for name, row in ranked[:_MAX_CLASSES]
    ]
    rest = len(ranked) - len(rows)
    more = f"<p>{rest} further classes are in evaluation.json.</p>" if rest else ""
    return table(("class", "objects", "predicted boxes", "AP", "AP50"), rows) + more


def _f1_of_shapes(evaluation: EvaluationData) -> np.ndarray:
    """Return F1 of each image at the lowest threshold of the shapes' measure, 1 without objects and detections."""
    pairs = evaluation.shape_pairs
    assert pairs is not None
    hits_I = evaluation.sum_detections(pairs.similarity_D > 0)
    all_I = evaluation.sum_detections(pairs.similarity_D >= 0) + evaluation.objects_per_image
    return np.where(all_I > 0, 2 * hits_I / np.maximum(all_I, 1), 1.0)


def _images(evaluation: EvaluationData, root: ImageRoot | None, limit: int) -> str:
    """Draw the images with the lowest and the highest F1, with ground truth and answer."""
    f1_I = _f1_of_shapes(evaluation) if evaluation.shapes else np.array([r["f1"] for r in image_table(evaluation)])
    order = np.argsort(f1_I, kind="stable")
    if len(order) > limit:
        half = limit // 2
        order = np.concatenate([order[: limit - half], order[len(order) - half :]])
    figures = []
    problems: dict[str, list[str]] = {}
    for image in order.tolist():
        svg, problem = draw(evaluation, image, root)
        name = shown_name(evaluation, image)
        if problem:
            problems.setdefault(problem, []).append(name)
        text = safe(evaluation.answers.get(image, ("",))[0], keep="\n\t")
        answer = f"<details><summary>answer</summary><pre>{text}</pre></details>" if text else ""
        figures.append(f"<figure>{svg}<figcaption>{safe(name)}: F1 {f1_I[image]:.2f}</figcaption>{answer}</figure>")
    notes = [
        f"{names[0]}: {problem}" if len(names) == 1 else f"{len(names)} images, the first {names[0]}: {problem}"
        for problem, names in problems.items()
    ]
    legend = f'<p class="legend">{LEGEND}. Sorted by F1, lowest first.</p>'
    return legend + _notes(notes[:5]) + f'<div class="images">{"".join(figures)}</div>'
