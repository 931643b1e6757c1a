"""Decisions about suspicions: what a person chose on the page of a review, as the file that the page saves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictInt, StrictStr

from coord_codec.files import InputError, read_json
from coord_codec.records import validated
from coord_eval.review.findings import KINDS

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
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


@dataclass(frozen=True)
class Named:
    """A name and a box, of a label or of the answer beside it.

    Attributes:
        desc: the name
        bbox_xyxy: corners in pixels
    """

    desc: Annotated[str, Field(pattern=r"\S")]
    bbox_xyxy: tuple[_Number, _Number, _Number, _Number]


@dataclass(frozen=True)
class Decision:
    """What was decided about one suspicion.

    Attributes:
        image_id: id of the image
        object: index of the label in its image, None for a missing one
        decision: one of `CHOICES`
        kind: the kind of fault that was suspected
        probability: its probability
        label: the label as it was; None for a missing one
        proposal: what the answer says; None without an answer
    """

    image_id: StrictInt | StrictStr
    object: Annotated[StrictInt, Field(ge=0)] | None
    decision: str
    kind: str
    probability: _Number
    label: Named | None = None
    proposal: Named | None = None

    def __post_init__(self) -> None:
        for name, found, known in (("decision", self.decision, CHOICES), ("kind", self.kind, KINDS)):
            if found not in known:
                raise InputError(f"{name}: expected one of {', '.join(known)}, found {found!r:.80}")
        if (self.object is None) != (self.kind == "missing"):
            raise InputError("object: expected null for a missing label and an index for others")
        if self.decision in (("add",) if self.object is not None else ("box", "name", "answer", "delete")):
            place = "missing" if self.object is None else f"object {self.object}"
            raise InputError(f"decision: {self.decision!r} cannot be done to this label, which is {place}")
        if self.decision in ("box", "name", "answer", "add"):
            x1, y1, x2, y2 = self.answer.bbox_xyxy
            if x1 >= x2 or y1 >= y2:
                raise InputError(f"proposal.bbox_xyxy: expected x1 < x2 and y1 < y2, found {[x1, y1, x2, y2]}")

    @property
    def answer(self) -> Named:
        """What the answer says, which the decision takes."""
        if self.proposal is None:
            raise InputError("proposal: expected the answer to take, found none")
        return self.proposal


@dataclass(frozen=True)
class Decisions:
    """The decisions of a file.

    Attributes:
        version: version of the file
        review: digest of the review that they are about
        ground_truth: digest of the labels that were reviewed
        decisions: in the order of the file
    """

    version: Literal[1]
    review: str
    ground_truth: str
    decisions: tuple[Decision, ...]

    def __post_init__(self) -> None:
        seen: dict[tuple[int | str, int], int] = {}
        for i, item in enumerate(self.decisions):
            first = i if item.object is None else seen.setdefault((item.image_id, item.object), i)
            if first != i:
                raise InputError(
                    f"decisions[{i}]: a second one about object {item.object} of image {item.image_id!r}, after "
                    f"decisions[{first}]; keep one"
                )


def read_decisions(path: str | Path) -> Decisions:
    """Read the file that the page of a review saves.

    Raises:
        InputError: if it is no such file, a decision is none, or two decisions are about one label
    """
    return validated(Decisions, read_json(path), str(path))
