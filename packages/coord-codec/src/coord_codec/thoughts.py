"""Finds the thoughts of an answer, `<think>…</think>`, which are no part of it: one rule for all that read answers."""

from __future__ import annotations

import re

_MARK = re.compile(
    r"[<\u25c1](/?)(?:\w{1,12}:)?(?:think(?:ing)?|thought|reasoning)[>\u25b7]|<\|(?:begin|(end))_of_thought\|>",
    re.IGNORECASE,
)
_PARTS = ("hink", "HINK", "hought", "HOUGHT", "easoning", "EASONING")
"""Of which a text with thoughts has one."""
_BRACKETS = re.compile(r"\[(/?)THINK\]()")


def find_thoughts(text: str) -> tuple[list[tuple[int, int]], int | None]:
    """Return the characters `[start, end)` of each thought, and where one begins that does not end.

    What stands before an end mark without a start mark is a thought if no mark stands before it, since some prompts
    contain the start mark. A thought that names the start mark itself ends at the first end mark, and one within
    another at the end mark of the outer one, if there is one.

    Example:
        >>> find_thoughts("<think>a</think>cat<think>b</think>dog")
        ([(0, 16), (19, 35)], None)
        >>> find_thoughts("a</think>cat<think>b")
        ([(0, 9)], 12)
        >>> find_thoughts("<think>a<think>b</think>c</think>dog")
        ([(0, 33)], None)
    """
    found: list[tuple[int, int]] = []
    if not any(map(text.__contains__, _PARTS)):  # nearly all texts
        return found, None
    begin: int | None = None
    inner = 0
    marks = (_BRACKETS if "[THINK]" in text or "[/THINK]" in text else _MARK).finditer(text)
    for mark in marks:
        if not (mark[1] or mark[2]):
            begin, inner = (mark.start(), 0) if begin is None else (begin, inner + 1)
        elif begin is not None:
            found.append((begin, mark.end()))
            begin = None
        elif not found:
            found.append((0, mark.end()))
        elif inner:
            found[-1], inner = (found[-1][0], mark.end()), inner - 1
    return found, begin


def without_thoughts(text: str) -> str:
    r"""Return a text of the same length with blanks for its thoughts, and a line break at both ends of each.

    Example:
        >>> without_thoughts("<think>a</think>cat")
        '\n              \ncat'
    """
    found, begin = find_thoughts(text)
    return blanked(text, found if begin is None else [*found, (begin, len(text))])


def blanked(text: str, ranges: list[tuple[int, int]]) -> str:
    """Return a text of the same length with blanks, between two line breaks, for some of its ranges, in their order."""
    parts, last = [], 0
    for start, end in ranges:
        parts += [text[last:start], f"\n{' ' * max(end - start - 2, 0)}\n"[: end - start]]
        last = end
    return "".join([*parts, text[last:]])
