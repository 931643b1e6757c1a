"""The text of an answer, every character coloured by what became of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from coord_codec.pages import coloured_text
from coord_eval.parse.answer import DROP_REASONS, REPAIRS, Answer

_FATES = {"desc": "description", "coord": "coordinate", "repaired": "repaired", "dropped": "dropped"}
_COORDINATE = re.compile(r"<\|coord_\d+\|>|-?\d+(?:\.\d+)?")


def coloured_answer(text: str, answer: Answer | None) -> str:
    """Return a text as HTML, with descriptions, coordinates, repaired and dropped pieces in colours and tooltips.

    Args:
        text: the text
        answer: the text parsed; None colours nothing
    """
    return coloured_text(text, _fates(text, answer) if answer is not None else ())


def answer_key() -> str:
    """Return the meaning of the colours."""
    fates = "".join(f'<i class="{kind}">{name}</i> ' for kind, name in _FATES.items())
    return f'<p class="fates">In answers: {fates}</p>'


def _fates(text: str, answer: Answer) -> Iterator[tuple[int, int, str, str]]:
    """Yield start, end, class and tooltip of the pieces of an answer: dropped ones, then objects with their parts."""
    for drop in answer.dropped:
        yield (*drop.span, "dropped", f"dropped: {DROP_REASONS.get(drop.reason, drop.reason)}")
    for item in answer.objects:
        start, end = item.span
        repairs = "; ".join(REPAIRS.get(name, name) for name in item.repairs)
        mark, reason = (" repaired", f", repaired: {repairs}") if repairs else ("", "")
        if repairs:
            yield start, end, "repaired", f"repaired: {repairs}"
        for found in _COORDINATE.finditer(text, start, end):
            yield *found.span(), f"coord{mark}", f"coordinate{reason}"
        if item.desc and (place := text.find(item.desc, start, end)) >= 0:
            yield place, place + len(item.desc), f"desc{mark}", f"description{reason}"
