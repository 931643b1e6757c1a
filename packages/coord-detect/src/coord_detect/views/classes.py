"""One question for each class."""

from __future__ import annotations

from dataclasses import dataclass

from coord_detect.views.view import Look, Question, View, no_argument


@dataclass(frozen=True)
class Classes(View):
    """The image itself, asked for each of the known labels, by the prompt of `data.class_prompt`."""

    name = "classes"
    about = "the image itself, with a question for each of the known labels"
    example = "classes"

    @classmethod
    def parse(cls, argument: str | None) -> Classes:  # noqa: D102
        no_argument(cls, argument)
        return cls()

    def objection(self, question: Question) -> str | None:  # noqa: D102
        if question.labels:
            return None
        return (
            "it asks for each label, and no labels are known; name them with --label, or answer the images of "
            "annotations"
        )

    def looks(self, width: int, height: int, question: Question) -> list[Look]:  # noqa: D102
        return [Look(prompt=question.class_prompt.replace("{classes}", label)) for label in question.labels]
