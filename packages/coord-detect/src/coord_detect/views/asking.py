"""Asks an engine about all views of some images, batched together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from coord_detect.views.registry import views_of
from coord_detect.views.view import Look, Question

if TYPE_CHECKING:
    from PIL import Image

VIEWS_KEY = "views"
"""Key of a record under which the raw answers to its further views lie."""
Ask = Callable[[Sequence["Image.Image"], str | None, float], list[dict[str, Any]]]
"""Function of images, a prompt (None for the usual one) and a factor of the limits of their size: their answers."""


def looks_of(words: Sequence[str], width: int, height: int, question: Question) -> list[tuple[str, Look]]:
    """Return what is shown of an image beside itself, each with the word of its view, always in the same order."""
    views = zip(words, views_of(words), strict=True)
    return [(word, look) for word, view in views for look in view.looks(width, height, question)]


def answer_views(
    words: Sequence[str], images: Sequence[Image.Image], question: Question, ask: Ask, at_once: int
) -> list[dict[str, Any]]:
    """Return the answer to each upright RGB image, with those to its views under `views`.

    If one of its views has no answer, neither has the image, so that a later call asks again. What `ask` is
    given together, up to `at_once` images, has one prompt and one factor.
    """
    shown = [[("", Look()), *looks_of(words, *image.size, question)] for image in images]
    groups: dict[tuple[str | None, float], list[tuple[int, int]]] = {}
    for number, looks in enumerate(shown):
        for place, (_, look) in enumerate(looks):
            groups.setdefault((look.prompt, look.pixels), []).append((number, place))
    answers: dict[tuple[int, int], dict[str, Any]] = {}
    for (prompt, pixels), places in groups.items():
        # View by view, since a batch's prompts are padded to that of the largest image.
        by_view = sorted(places, key=lambda place: (shown[place[0]][place[1]][0], place))
        for start in range(0, len(by_view), at_once):
            batch = by_view[start : start + at_once]
            asked = [shown[number][place][1].show(images[number]) for number, place in batch]
            answers |= dict(zip(batch, ask(asked, prompt, pixels), strict=True))
    return [
        _one_record(looks, [answers[number, place] for place in range(len(looks))])
        for number, looks in enumerate(shown)
    ]


def _one_record(looks: Sequence[tuple[str, Look]], answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = []
    for (word, look), answer in zip(looks, answers, strict=True):
        if answer["finish_reason"] == "error":
            reason = str(answer.get("error"))
            return {"text": None, "finish_reason": "error", "error": f"{word}: {reason}" if word else reason}
        row: dict[str, Any] = {"view": word, **answer}
        if look.crop is not None:  # as coord_eval reads it
            left, top, right, bottom = look.crop
            row["tile"] = [left, top, right - left, bottom - top]
        if look.prompt is not None:
            row["prompt"] = look.prompt
        rows.append(row)
    return {**answers[0], VIEWS_KEY: rows[1:]} if len(rows) > 1 else dict(answers[0])
