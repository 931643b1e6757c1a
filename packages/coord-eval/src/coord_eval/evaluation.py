"""The result of an evaluation: numbers, and what they were made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_eval.analysis import analyse
from coord_eval.answer import Answer
from coord_eval.detections import Detections
from coord_eval.joining import JoinReport
from coord_eval.matching import Matches
from coord_eval.truth import GroundTruth

if TYPE_CHECKING:
    from coord_eval.report import ReportSection

#: Raised when a key of ``evaluation.json`` changes its meaning.
SCHEMA_VERSION = 1


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All numbers of one set of answers. Keys ending in a number are IoU thresholds.

    Attributes:
        coco: The twelve COCO numbers under ``score_source``; -1 where no object of that kind exists.
        coco_constant_score: The same with every score 1, by our own matching, as the next.
        coco_class_agnostic: The same as ``coco`` when any label may find any object: COCO's ``useCats=0``, all labels
            one, unknown labels included, the 100 best boxes of a picture.
        score_source: What detections are ranked by.
        backend: What computed ``coco``, ``per_class`` and ``ceiling``.
        detection: Micro precision, recall and F1 at .5, .75 and over .5:.95; no score enters.
        detection_class_agnostic: The same when any label may find any object.
        mean_iou: Mean over objects of the IoU with their one-to-one partner of the same label.
        mean_iou_class_agnostic: The same when any label may find any object.
        format: Format health.
        labels: Objects by the layer that matched their label; ``unknown`` ones count as false.
        unknown_labels: How often each unknown label occurs.
        ceiling: The twelve COCO numbers of the truth itself, encoded and parsed back, under a constant score;
            empty when it cannot be computed.
        counts: Images, objects, crowd regions, detections, detections beyond COCO's limit.
        join: How answers and images met.
        per_class: For each category AP, AP50, objects, detections.
        notes: What a reader of the numbers has to know.
        truth: The objects.
        detections: The answers as boxes.
        matches: Who found whom.
        matches_any_label: The same when any label may find any object.
        answers: The parsed answers with the image each is about; empty for results lists.
        bins: Units per picture side in which ``analysis`` gives errors: the grid's scale.
        intervals: Metrics with their 95 % intervals over pictures, where a bootstrap was asked for.
    """

    coco: dict[str, float]
    coco_constant_score: dict[str, float]
    coco_class_agnostic: dict[str, float]
    score_source: str
    backend: str
    detection: dict[str, dict[str, float]]
    detection_class_agnostic: dict[str, dict[str, float]]
    mean_iou: float
    mean_iou_class_agnostic: float
    format: dict[str, Any]
    labels: dict[str, int]
    unknown_labels: dict[str, int]
    ceiling: dict[str, float]
    counts: dict[str, int]
    join: JoinReport
    per_class: dict[str, dict[str, float]]
    notes: tuple[str, ...]
    truth: GroundTruth = field(repr=False)
    detections: Detections = field(repr=False)
    matches: Matches = field(repr=False)
    matches_any_label: Matches = field(repr=False)
    answers: dict[int, tuple[str, Answer]] = field(repr=False)
    bins: int = field(repr=False)
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)

    @cached_property
    def analysis(self) -> dict[str, Any]:
        """Macro figures, edge bias, counts, breakdowns, calibration, error kinds and confusion; see analysis.py."""
        return analyse(self, self.bins)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``evaluation.json`` holds: plain types, values unrounded."""
        return {
            "schema_version": SCHEMA_VERSION,
            "coco": self.coco,
            "coco_constant_score": self.coco_constant_score,
            "coco_class_agnostic": self.coco_class_agnostic,
            "score_source": self.score_source,
            "backend": self.backend,
            "detection": self.detection,
            "detection_class_agnostic": self.detection_class_agnostic,
            "mean_iou": self.mean_iou,
            "mean_iou_class_agnostic": self.mean_iou_class_agnostic,
            "format": self.format,
            "labels": self.labels,
            "unknown_labels": self.unknown_labels,
            "ceiling": self.ceiling,
            "counts": self.counts,
            "join": asdict(self.join),
            "per_class": self.per_class,
            "analysis": self.analysis,
            "intervals": self.intervals,
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def write_report(
        self,
        folder: str | Path,
        *,
        image_root: str | Path | None = None,
        title: str | None = None,
        sections: Sequence[ReportSection] = (),
        max_overlays: int = 12,
    ) -> Path:
        """Write ``evaluation.json`` and ``report.html`` into a folder, each whole or not at all.

        Args:
            folder: Created when missing; reports of an earlier evaluation are replaced.
            image_root: Where the ground truth's file names lie; by default beside the ground truth.
            title: Heading of the report.
            sections: Further parts for the report, shown in front of the overlays.
            max_overlays: At most so many pictures with truth and answer drawn in.

        Returns:
            The path of ``report.html``.

        Raises:
            OSError: When the folder cannot be written.
        """
        from coord_eval.report import render_report
        from coord_eval.writing import write_text

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        html = render_report(
            self, image_root=image_root, title=title, sections=sections, max_overlays=max_overlays
        )
        write_text(folder / "evaluation.json", self.to_json())
        write_text(folder / "report.html", html)
        return folder / "report.html"
