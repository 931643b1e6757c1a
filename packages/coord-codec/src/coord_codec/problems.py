"""What is wrong with records: their problems, descriptions that cannot stand in a target text, and repeated ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from coord_codec.counts import counted
from coord_codec.files import InputError
from coord_codec.vocab import find_control_token

_SHOWN = 5  # how many problems a strict error lists


@dataclass(frozen=True)
class Problem:
    """Something wrong with a record.

    Attributes:
        where: file and line, `train.jsonl:12`
        field: the field, `objects[3].bbox`; empty if the problem concerns the whole line
        message: what was expected and what was found
        training_only: whether only training leaves the record out; scoring against the file keeps it, as the COCO
            tools do (a box of zero area, an image without a size)
        is_box: whether an object was refused, rather than an image or a line
    """

    where: str
    field: str
    message: str
    training_only: bool = False
    is_box: bool = False

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.field, self.message) if part)


def check_description(desc: str) -> str:
    """Return the description if it can occur in a target text."""
    if fault := description_fault(desc):
        raise ValueError(fault)
    return desc


@lru_cache(maxsize=1 << 13)
def description_fault(desc: str) -> str | None:
    """Return why a description cannot occur in a target text, or None if it can."""
    if not desc.strip():
        return "expected a description, found an empty one"
    if token := find_control_token(desc):
        return f"expected plain words, found the control token {token} in {desc!r}: remove it"
    try:
        desc.encode()
    except UnicodeEncodeError:
        return f"expected valid Unicode, found half a surrogate pair in {desc!r}"
    return None


def raise_for(problems: Iterable[Problem], summary: str) -> None:
    """Raise an error that lists the first few problems, if there are any."""
    problems = list(problems)
    if problems:
        rest = f"\nand {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        listed = "\n".join(str(problem) for problem in problems[:_SHOWN])
        raise InputError(f"{summary}:\n{listed}{rest}")


def raise_for_refused(problems: Iterable[Problem]) -> None:
    """Raise an error if objects were refused, as `on_bad_box: error` asks."""
    refused = [problem for problem in problems if problem.is_box]
    fault = f"{counted(len(refused), 'object is', 'objects are')} refused, and on_bad_box is error"
    raise_for(refused, f"{fault}; mend them, or let on_bad_box leave them out")


class UniqueIds:
    """Finds the records whose image id an earlier record has.

    Example:
        >>> ids = UniqueIds()
        >>> ids.fault(7, "a.jsonl:1"), str(ids.fault(7, "a.jsonl:2"))
        (None, 'a.jsonl:2: image_id: expected an id of its own, found 7, which a.jsonl:1 has already')
    """

    def __init__(self) -> None:
        self._first_uses: dict[int | str, str] = {}

    def fault(self, image_id: int | str | None, where: str) -> Problem | None:
        """Return the problem of a record whose id is taken; None if it has an id of its own or none."""
        first = where if image_id is None else self._first_uses.setdefault(image_id, where)
        if first is where:
            return None
        return Problem(where, "image_id", f"expected an id of its own, found {image_id!r}, which {first} has already")
