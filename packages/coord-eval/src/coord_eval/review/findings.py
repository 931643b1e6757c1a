"""What a review finds: labels that are probably wrong, and answers that no label has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coord_codec.geometry.base import Box
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.sorting import places_in_images

KINDS = {
    "renamed": "the object has another name",
    "moved": "the box lies elsewhere or has another size",
    "missing": "an object without a label",
    "spurious": "a label without an object",
    "duplicate": "a second label of the same object",
    "mixed": "another name and another box",
}
"""Kinds of faults, and what each says about the label."""


@dataclass(frozen=True)
class Proposal:
    """What the answer says in place of a label.

    Attributes:
        desc: the name
        box_xyxy: corners in pixels
        score: score of the answer as it stands in the predictions
    """

    desc: str
    box_xyxy: Box
    score: float


@dataclass(frozen=True)
class ReviewFinding:
    """The judgement of one label, or the suspicion that an answer shows a missing one.

    Attributes:
        image_id: id of the image
        image: its file name
        object: index of the label in its image, in the order of the annotations; None for a missing one
        answer: index of the answer in its image, in the order of the answers; None if no answer speaks for the fault
        kind: one of `KINDS`, of a label the most probable one, whether or not a fault is probable
        probability: that the label is wrong, or missing, in [0, 1]
        label: name of the label; None for a missing one
        box_xyxy: corners of the label in pixels; None for a missing one
        proposal: what the answer says instead; None where the proposal is to delete the label
        evidence: the figures that led there, by name; only of suspicions
    """

    image_id: int | str
    image: str
    object: int | None
    answer: int | None
    kind: str
    probability: float
    label: str | None
    box_xyxy: Box | None
    proposal: Proposal | None
    evidence: Mapping[str, float] = field(default_factory=dict)


def rows_by_place(truth: GroundTruth) -> dict[tuple[int, int], int]:
    """Return the row of each label by its image and its index among those of the image."""
    places = places_in_images(truth.image_N).tolist()
    return {key: n for n, key in enumerate(zip(truth.image_N.tolist(), places, strict=True))}
