"""A review as a whole, and the files it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec.files import write_text
from coord_eval.boxes.detections import Detections
from coord_eval.intake.digests import digest_of
from coord_eval.intake.ground_truth import GroundTruth
from coord_eval.page_options import MOST_SHOWN, ImageRoot
from coord_eval.review.findings import KINDS, Box, ReviewFinding

VERSION = 1
"""Version of `review.json`; increased when a key changes its meaning."""


@dataclass(frozen=True, eq=False)
class Review:
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
        proposal = finding.proposal
        return {
            "image": finding.image,
            "image_id": finding.image_id,
            "object": finding.object,
            "answer": finding.answer,
            "kind": finding.kind,
            "probability": finding.probability,
            "label": self._boxed(finding, finding.label, finding.box_xyxy),
            "proposal": None
            if proposal is None
            else {**(self._boxed(finding, proposal.desc, proposal.box_xyxy) or {}), "score": proposal.score},
            "evidence": dict(finding.evidence),
        }

    def _boxed(self, finding: ReviewFinding, desc: str | None, box: Box | None) -> dict[str, Any] | None:
        if box is None:
            return None
        width, height = self.truth.sizes_I2[self._index[finding.image_id]].tolist()
        unit = [v / side for v, side in zip(box, (width, height, width, height), strict=True)]
        return {"desc": desc, "bbox": unit if np.isfinite(unit).all() else None, "bbox_xyxy": list(box)}

    @cached_property
    def _index(self) -> dict[int | str, int]:
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

    def write(
        self,
        folder: str | Path,
        *,
        image_root: str | ImageRoot | None = None,
        title: str = "Review of labels",
        most: int = MOST_SHOWN,
        facts: Mapping[str, object] | None = None,
    ) -> Path:
        """Write `review.jsonl`, `review.json` and the page `review.html` into a folder; return the page.

        Args:
            folder: created if missing; it may hold an earlier review, which is replaced, but no decisions
            image_root: folder of the images, outside of which no file is read, or a function from the name of an image
                to its file; by default the folder of the ground truth
            title: heading of the page
            most: most suspicions on the page
            facts: what the page is about, such as the names of model and data, shown below the heading

        Raises:
            OSError: if the folder cannot be written
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        root: ImageRoot | None = Path(image_root) if isinstance(image_root, str) else image_root
        lines = (json.dumps(self.to_line(finding), ensure_ascii=False, allow_nan=False) for finding in self.findings)
        # The page rests on this module, and is imported when it is asked for.
        html: str = import_module("coord_eval.review.page").review_page(self, root, title, most, facts)
        write_text(folder / "review.jsonl", "".join(f"{line}\n" for line in lines))
        write_text(folder / "review.json", json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        write_text(folder / "review.html", html)
        return folder / "review.html"
