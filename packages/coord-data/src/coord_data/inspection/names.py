"""Findings about class names: several spellings of one class, and classes that occur once."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence

from coord_codec.counts import counted
from coord_codec.labels import normalize_label
from coord_data.finding import Finding, by_share
from coord_data.sources.raw_boxes import RawBoxes

_FREQUENT = 20
"""How many times as frequent a name must be as another one, for that to be a typing error of it."""
_LEAST_LETTERS = 4
"""Length from which names that differ by a letter are compared: cat and car are two classes."""
_LISTED = 10


def class_names(raw: RawBoxes) -> list[Finding]:
    """Report names that differ only in case, spaces or punctuation, typing errors, and classes that occur once."""
    counts = raw.class_counts
    groups: dict[str, list[str]] = defaultdict(list)
    for name in counts:
        groups[normalize_label(name)].append(name)
    findings = []
    if variants := [names for names in groups.values() if len(names) > 1]:
        rows = sum(counts[name] for names in variants for name in sorted(names, key=counts.__getitem__)[:-1])
        listed = "; ".join(" and ".join(f"{_shown(n, names)} ({counts[n]})" for n in names) for names in variants[:5])
        message = f"{len(variants)} class{'es have' if len(variants) > 1 else ' has'} several names"
        message += ", which differ only in case, spaces, punctuation or Unicode form"
        fix = "give each class one name in the annotations: COCO's categories, classes.txt, data.yaml, labels"
        findings.append(Finding("class_names", by_share(rows, len(raw)), message, listed, rows, fix))
    if errors := typing_errors(counts):
        rows = sum(counts[name] for name in errors)
        pairs = [f"{name!r} ({counts[name]}) and {meant!r} ({counts[meant]})" for name, meant in errors.items()]
        listed = "; ".join(pairs[:_LISTED]) + ("; ..." if len(pairs) > _LISTED else "")
        verb = "is" if len(errors) == 1 else "are"
        message = f"{counted(len(errors), 'rare class name')} {verb} one letter away from a frequent one"
        fix = "if they are typing errors, correct them"
        findings.append(Finding("similar_names", by_share(rows, len(raw)), message, listed, rows, fix))
    if rare := sorted(name for name, count in counts.items() if count == 1 and name not in errors):
        listed = ", ".join(rare[:_LISTED]) + (", ..." if len(rare) > _LISTED else "")
        verb = "occurs" if len(rare) == 1 else "occur"
        message = f"{len(rare)} of {counted(len(counts), 'class', 'classes')} {verb} once"
        findings.append(Finding("rare_classes", "note", message, listed, len(rare), "expect no recall for them"))
    return findings


def _shown(name: str, others: Sequence[str]) -> str:
    """Return a name in quotes; one that looks like another, since it has another Unicode form, by its code points."""
    forms = [unicodedata.normalize("NFC", other) for other in others]
    return ascii(name) if forms.count(unicodedata.normalize("NFC", name)) > 1 else repr(name)


def typing_errors(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the frequent name that each rare name is one letter away from: changed, left out, added or exchanged.

    Names with digits, such as `size 10` and `size 11`, are never typing errors of each other.

    Example:
        >>> typing_errors({"truck": 400, "truvk": 2, "trucks": 300, "car": 900, "cat": 3})
        {'truvk': 'truck'}
    """
    comparable = (name for name in counts if len(name) >= _LEAST_LETTERS and not any(map(str.isdigit, name)))
    frequent = sorted(comparable, key=lambda name: -counts[name])
    by_part: dict[str, list[str]] = defaultdict(list)
    for name in frequent:
        for part in _one_left_out(name):
            by_part[part].append(name)
    errors = {}
    for name in frequent:
        candidates = dict.fromkeys(other for part in _one_left_out(name) for other in by_part[part])
        meant = (
            other
            for other in candidates
            if counts[other] >= _FREQUENT * counts[name]
            and normalize_label(other) != normalize_label(name)
            and _is_one_away(name.casefold(), other.casefold())
        )
        if best := max(meant, key=counts.__getitem__, default=None):
            errors[name] = best
    return errors


def _one_left_out(name: str) -> set[str]:
    """Return the name, and what is left of it without one letter: names that are one letter away share one of these."""
    folded = name.casefold()
    return {folded, *(folded[:i] + folded[i + 1 :] for i in range(len(folded)))}


def _is_one_away(one: str, other: str) -> bool:
    """Return whether one change, omission, addition or exchange of neighbours turns one name into the other."""
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    exchanged = len(a) >= 2 and len(b) >= 2 and a[:2] == b[1::-1] and a[2:] == b[2:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or exchanged
