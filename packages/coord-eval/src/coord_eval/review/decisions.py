"""Decisions about suspicions: what a person chose on the page of a review, as the file that the page saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coord_codec.files import InputError, finite_numbers, identifier, read_json
from coord_eval.review.findings import KINDS, Box

VERSION = 1
CHOICES = {
    "keep": ("k", "keep"),
    "box": ("b", "take the answer's box"),
    "name": ("n", "take its name"),
    "answer": ("t", "take both"),
    "delete": ("d", "delete"),
    "add": ("a", "add"),
    "later": ("l", "look later"),
}
"""Decisions, with the key of the page and what its button says."""
_NEEDS_ANSWER = ("box", "name", "answer", "add")


@dataclass(frozen=True)
class Decision:
    """What was decided about one suspicion.

    Attributes:
        image_id: id of the image
        object: index of the label in its image, None for a missing one
        choice: one of `CHOICES`
        kind: the kind of fault that was suspected
        probability: its probability
        label: name of the label as it was; None for a missing one
        desc: name that the answer gives; None without an answer
        box_xyxy: box that it gives, corners in pixels
    """

    image_id: int | str
    object: int | None
    choice: str
    kind: str
    probability: float
    label: str | None = None
    desc: str | None = None
    box_xyxy: Box | None = None


@dataclass(frozen=True)
class Decisions:
    """The decisions of a file.

    Attributes:
        decisions: in the order of the file
        review: digest of the review that they are about
        ground_truth: digest of the labels that were reviewed
    """

    decisions: tuple[Decision, ...]
    review: str
    ground_truth: str


def read_decisions(path: str | Path) -> Decisions:
    """Read the file that the page of a review saves.

    Raises:
        InputError: if it is no such file, a decision is none, or two decisions are about one label
    """
    document = read_json(path)
    found = document.get("version") if isinstance(document, Mapping) else type(document).__name__
    if found != VERSION:
        raise InputError(f"{path}: version: expected decisions of version {VERSION}, found {found!r:.80}")
    for name in ("review", "ground_truth"):
        if not isinstance(document.get(name), str):
            raise InputError(
                f"{path}: {name}: expected a digest, found {document.get(name)!r:.80}; save the page again"
            )
    rows = document.get("decisions")
    if not isinstance(rows, list):
        raise InputError(f"{path}: decisions: expected a list, found {rows!r:.80}")
    decisions = [_decision(row, f"{path}: decisions[{i}]") for i, row in enumerate(rows)]
    first: dict[tuple[int | str, int], int] = {}
    for i, item in enumerate(decisions):
        if item.object is not None and first.setdefault((item.image_id, item.object), i) != i:
            raise InputError(
                f"{path}: decisions[{i}]: a second one about object {item.object} of image {item.image_id!r}, after "
                f"decisions[{first[item.image_id, item.object]}]; keep one"
            )
    return Decisions(tuple(decisions), document["review"], document["ground_truth"])


def _decision(row: Any, where: str) -> Decision:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: expected an object, found {row!r:.80}")
    choice, kind, place = row.get("decision"), row.get("kind"), row.get("object")
    if choice not in CHOICES:
        raise InputError(f"{where}: decision: expected one of {', '.join(CHOICES)}, found {choice!r:.80}")
    if kind not in KINDS:
        raise InputError(f"{where}: kind: expected one of {', '.join(KINDS)}, found {kind!r:.80}")
    if place is not None and (isinstance(place, bool) or not isinstance(place, int) or place < 0):
        raise InputError(f"{where}: object: expected the index of a label or null, found {place!r:.80}")
    if (place is None) != (kind == "missing"):
        raise InputError(f"{where}: object: expected null for a missing label and an index for others, found {place!r}")
    if choice == "add" and place is not None:
        raise InputError(f"{where}: decision: 'add' is for missing labels, and this is object {place}")
    if place is None and choice in ("box", "name", "answer", "delete"):
        raise InputError(f"{where}: decision: {choice!r} needs a label, and this one is missing; keep, add or later")
    (probability,) = finite_numbers([row.get("probability")], 1, f"{where}: probability")
    label, proposal = row.get("label"), row.get("proposal")
    if choice in _NEEDS_ANSWER and not isinstance(proposal, Mapping):
        raise InputError(f"{where}: proposal: expected the answer to take, found {proposal!r:.80}")
    box = None
    if isinstance(proposal, Mapping):
        x1, y1, x2, y2 = finite_numbers(proposal.get("bbox_xyxy"), 4, f"{where}: proposal.bbox_xyxy")
        if x1 >= x2 or y1 >= y2:
            raise InputError(f"{where}: proposal.bbox_xyxy: expected x1 < x2 and y1 < y2, found {[x1, y1, x2, y2]}")
        box = (x1, y1, x2, y2)
        if not isinstance(proposal.get("desc"), str) or not proposal["desc"].strip():
            raise InputError(f"{where}: proposal.desc: expected a name, found {proposal.get('desc')!r:.80}")
    return Decision(
        image_id=identifier(row.get("image_id"), f"{where}: image_id"),
        object=place,
        choice=choice,
        kind=kind,
        probability=probability,
        label=label.get("desc") if isinstance(label, Mapping) else None,
        desc=proposal["desc"] if isinstance(proposal, Mapping) else None,
        box_xyxy=box,
    )
