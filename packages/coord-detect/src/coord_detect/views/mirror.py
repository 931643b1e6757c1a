"""The mirror image."""

from __future__ import annotations

from dataclasses import dataclass

from coord_detect.views.sides import names_a_side
from coord_detect.views.view import Look, Question, View, no_argument


@dataclass(frozen=True)
class Mirror(View):
    """The image mirrored left to right; not for texts that name a side, which would mean another object."""

    name = "mirror"
    about = "the mirror image"
    example = "mirror"

    @classmethod
    def parse(cls, argument: str | None) -> Mirror:  # noqa: D102
        no_argument(cls, argument)
        return cls()

    def objection(self, question: Question) -> str | None:  # noqa: D102
        for text in (question.prompt, *question.labels):
            if names_a_side(text):
                return f"{text!r:.80} names a side, and in the mirror image it means another object"
        return None

    def looks(self, width: int, height: int, question: Question) -> list[Look]:  # noqa: D102
        return [Look(mirrored=True)]

    def keeps(self, label: str) -> bool:  # noqa: D102
        return not names_a_side(label)
