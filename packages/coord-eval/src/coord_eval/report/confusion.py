"""The confusion matrix of labels as a heat map with background, and the most frequent pairs of different labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from coord_codec.counts import counted
from coord_codec.pages import safe, scrolled, table
from coord_eval.metrics.errors import BACKGROUND, UNKNOWN, confused_name, confused_pairs

if TYPE_CHECKING:
    from coord_eval.metrics.figures import Figures

_MATRIX = 24
"""Most labels of the matrix; those with most confusions are shown."""


def confusions(evaluation: Figures) -> str:
    """Return the matrix and the pairs; empty without objects and boxes."""
    confusion: dict[str, dict[str, int]] = evaluation.analysis["confusion"]
    if not confusion:
        return ""
    rows = []
    for true, predicted, count in confused_pairs(confusion):
        row = evaluation.intervals.get(confused_name(true, predicted))
        share = f"{count / sum(confusion[true].values()):.3f}"
        interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if row else ""
        rows.append((true, predicted, count, share + interval))
    head = ("ground-truth label", "predicted label", "count", "share of the label")
    pairs = table(head, rows, sortable=True) if rows else ""
    return f"<div>{_matrix(confusion)}{pairs}</div>"


def confusion_main(evaluation: Figures) -> str:
    """Return the number of boxes that lie on an object of another label."""
    confusion = evaluation.analysis["confusion"]
    wrong = sum(
        count
        for true, row in confusion.items()
        for predicted, count in row.items()
        if BACKGROUND not in (true, predicted) and true != predicted
    )
    return counted(wrong, "box", "boxes") + " of another label"


def _matrix(confusion: Mapping[str, Mapping[str, int]]) -> str:
    wrong: Counter[str] = Counter()
    for true, row in confusion.items():
        for predicted, count in row.items():
            wrong[true] += count * (true != predicted)
            wrong[predicted] += count * (true != predicted)
    last = [name for name in (UNKNOWN, BACKGROUND) if name in wrong]
    names = [name for name, _ in wrong.most_common() if name not in last][:_MATRIX]
    left_out = len(wrong) - len(last) - len(names)
    columns = [*names, *last]
    rows = []
    for true in (*names, *(name for name in last if name in confusion)):
        row = confusion.get(true, {})
        total = max(sum(row.values()), 1)
        cells = [f'<th scope="row">{safe(true)}</th>']
        for predicted in columns:
            same, count = " class=same" if predicted == true else "", row.get(predicted, 0)
            cells.append(f'<td style="--v:{count / total:.2f}"{same}>{count or ""}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    header = "".join(f'<th scope="col">{safe(name)}</th>' for name in columns)
    more = f" {counted(left_out, 'label')} with fewer confusions left out." if left_out else ""
    matrix = f"<table class=matrix><thead><tr><th></th>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return (
        "<p>Rows: ground truth; columns: answers; boxes are paired at an IoU of at least .50 whatever their label. "
        f"Shades: share of the row.{more}</p>{scrolled(matrix)}"
    )
