"""What a review found, and the lines and facts that its files hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from coord_codec.geometry.base import Box
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.digests import digest_of
from coord_eval.review.findings import KINDS, ReviewFinding

VERSION = 1
"""Version of `review.json`; increased when a key changes its meaning."""


@dataclass(frozen=True, eq=False)
class JudgedLabels:
    """A review of all labels of a set: suspicions, and the judgement of every label.

    Attributes:
        findings: suspicions by descending probability
        judged: every label that was judged, in the order of the ground truth; crowd regions are not
        notes: conditions that matter when interpreting the probabilities
        rests_on: versions, digests of ground truth, answers and likelihoods, and the settings
        truth: the ground truth
        detections: the answers
    """

    findings: tuple[ReviewFinding, ...]
    judged: tuple[ReviewFinding, ...]
    notes: tuple[str, ...]
    rests_on: Mapping[str, Any]
    truth: GroundTruth = field(repr=False)
    detections: Detections = field(repr=False)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the suspicions, by which decisions name the review that they are about."""
        return digest_of([self.to_line(finding) for finding in self.findings])

    def to_line(self, finding: ReviewFinding) -> dict[str, Any]:
        """Return a suspicion as it stands in `review.jsonl`; boxes are `bbox` in [0, 1] and `bbox_xyxy` in pixels."""
        label = proposal = None
        if finding.box_xyxy is not None:
            label = self._boxed(finding.image_id, finding.label, finding.box_xyxy)
        if (said := finding.proposal) is not None:
            proposal = {**self._boxed(finding.image_id, said.desc, said.box_xyxy), "score": said.score}
        return {
            "image": finding.image,
            "image_id": finding.image_id,
            "object": finding.object,
            "answer": finding.answer,
            "kind": finding.kind,
            "probability": finding.probability,
            "label": label,
            "proposal": proposal,
            "evidence": dict(finding.evidence),
        }

    def _boxed(self, image_id: int | str, desc: str | None, box: Box) -> dict[str, Any]:
        unit = (np.array(box) / np.tile(self.truth.sizes_I2[self.image_index[image_id]], 2)).tolist()
        return {"desc": desc, "bbox": unit if np.isfinite(unit).all() else None, "bbox_xyxy": list(box)}

    @cached_property
    def image_index(self) -> dict[int | str, int]:
        """The index of each image by its id."""
        return {image_id: i for i, image_id in enumerate(self.truth.image_ids)}

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of `review.json`: what the review rests on, its notes, and every judged label."""
        kinds = [finding.kind for finding in self.findings]
        return {
            "version": VERSION,
            "review": self.digest,
            "rests_on": dict(self.rests_on),
            "notes": list(self.notes),
            "counts": {
                "images": len(self.truth),
                "labels": len(self.judged),
                "answers": len(self.detections),
                "findings": len(kinds),
                **{kind: kinds.count(kind) for kind in KINDS},
            },
            "judged": [
                {"image_id": j.image_id, "object": j.object, "kind": j.kind, "probability": j.probability}
                for j in self.judged
            ],
        }
