"""Tells the thoughts in the text of an answer, which state no object: what stands in `<think>` or `<thinking>`."""

from __future__ import annotations

import re

THOUGHT_MARK = re.compile(r"[<\u25c1](/?)(?:think(?:ing)?|thought|reasoning)[>\u25b7]", re.IGNORECASE)
"""The mark at the beginning or the end of a thought."""


def thoughts(text: str) -> list[tuple[int, int]]:
    """Return where each thought begins and ends, with its marks.

    The text before an end mark without a start mark is a thought too, since some prompts contain the start mark, and so
    is the text behind a start mark without an end.

    Example:
        >>> thoughts("<think>a</think>b"), thoughts("a</think>b"), thoughts("b<think>a"), thoughts("b")
        ([(0, 16)], [(0, 9)], [(1, 9)], [])
    """
    found, begin = list[tuple[int, int]](), -1
    for mark in THOUGHT_MARK.finditer(text):
        if not mark[1]:
            begin = mark.start() if begin < 0 else begin
        elif begin < 0:
            found = [(0, mark.end())]
        else:
            found.append((begin, mark.end()))
            begin = -1
    return [*found, (begin, len(text))] if begin >= 0 else found


def without_thoughts(text: str) -> str:
    """Return a text without its thoughts.

    Example:
        >>> without_thoughts("<think>Maybe [1, 2]?</think>[3, 4]")
        '[3, 4]'
    """
    kept, at = "", 0
    for begin, end in thoughts(text) if "<" in text or "\u25c1" in text else ():
        kept, at = kept + text[at:begin], end
    return kept + text[at:]
