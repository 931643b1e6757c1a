"""Which label is answered for which, background included."""

from __future__ import annotations

from collections import Counter

from coord_eval.detections import Detections
from coord_eval.matching import Matches
from coord_eval.truth import GroundTruth

BACKGROUND = "(background)"
UNKNOWN = "(unknown label)"
_PAIRS = 15


def confusion(truth: GroundTruth, detections: Detections, any_label: Matches) -> dict[str, dict[str, int]]:
    """Return how often each true label was answered as which.

    Pairs are those of the matching in which any label may find any object, from IoU .5 on. An object without
    partner was answered as background, a box without partner answers background; crowd regions take no part.

    Returns:
        ``{true label: {answered label: count}}``, without zeros.
    """
    names = truth.categories
    table: dict[str, Counter[str]] = {}
    found = set()
    for d in range(len(detections)):
        label = int(detections.category_D[d])
        answered = names[label] if label < len(names) else UNKNOWN
        if any_label.iou_D[d] >= 0.5:
            found.add(int(any_label.object_D[d]))
            true = names[truth.category_N[any_label.object_D[d]]]
        elif any_label.crowd_D[d] >= 0.5:
            continue
        else:
            true = BACKGROUND
        table.setdefault(true, Counter())[answered] += 1
    for n in range(len(truth.image_N)):
        if n not in found and not truth.crowd_N[n]:
            table.setdefault(names[truth.category_N[n]], Counter())[BACKGROUND] += 1
    return {true: dict(row.most_common()) for true, row in sorted(table.items())}


def confused_pairs(table: dict[str, dict[str, int]]) -> list[tuple[str, str, int]]:
    """Return the most frequent pairs of different labels: true, answered, count; background is none."""
    pairs = [
        (count, true, answered)
        for true, row in table.items()
        for answered, count in row.items()
        if BACKGROUND not in (true, answered) and true != answered
    ]
    return [(true, answered, count) for count, true, answered in sorted(pairs, reverse=True)[:_PAIRS]]


def confused_name(true: str, answered: str) -> str:
    """Return the name of the metric: the share of a label's objects that are answered as another."""
    return f"confused_{true}_as_{answered}"
