"""What to look at first: the kinds of error that cost most AP50, in words with their figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import numpy as np

from coord_codec.counts import counted
from coord_codec.pages import safe
from coord_eval.metrics.errors import ERROR_KINDS, ErrorKinds

if TYPE_CHECKING:
    from coord_eval.metrics.figures import Figures

_SHOWN = 3
_LEAST_COST = 0.0005
_IN_WORDS = {
    "localisation": "are places, not names: the right label with an IoU between .10 and .50",
    "label": "are names, not places: a box on an object (IoU ≥ .50) of another label",
    "duplicate": "are second boxes on an object that another box has found",
    "background": "are boxes where nothing is annotated (IoU below .10)",
    "label_and_localisation": "have neither the right label nor an IoU of .50",
    "missed": "are missed objects that no box explains",
}


class CostlyError(NamedTuple):
    """A kind of error, what it costs as a sentence, and the indices of the images that show it."""

    kind: str
    text: str
    images: frozenset[int]


def costly_errors(evaluation: Figures, kinds: ErrorKinds) -> list[CostlyError]:
    """Return the kinds of error that cost most AP50, the most expensive first; at most three."""
    found = evaluation.analysis["errors"] if evaluation.has_boxes else {}
    total = sum(row["count"] for row in found.values())
    dearest = sorted(found, key=lambda name: -found[name]["cost"])[:_SHOWN]
    return [
        _finding(evaluation, kinds, name, **found[name], total=total)
        for name in dearest
        if found[name]["cost"] >= _LEAST_COST
    ]


def findings_html(findings: Sequence[CostlyError], shown: frozenset[int]) -> str:
    """Return the findings as a list; each is a link that filters the gallery to those of its images that are shown."""
    items = []
    for finding in findings:
        here, all_images = len(finding.images & shown), counted(len(finding.images), "image")
        words = f"Show {all_images}" if here == len(finding.images) else f"Show {here} of {all_images}"
        link = f' <a href="#images" data-filter="{safe(urlencode({"kind": finding.kind}))}">{words}</a>'
        items.append(f"<li>{safe(finding.text)}{link if here else ''}</li>")
    return f'<ol class="findings-first">{"".join(items)}</ol>'


def _finding(evaluation: Figures, kinds: ErrorKinds, kind: str, *, count: int, cost: float, total: int) -> CostlyError:
    truth, detections = evaluation.truth, evaluation.detections
    if kind == "missed":
        images = truth.image_N[kinds.missed_N]
        named = [truth.categories[k] for k in truth.category_N[kinds.missed_N].tolist()]
    else:
        rows_d = np.nonzero(kinds.kind_D == list(ERROR_KINDS).index(kind))[0]
        images = detections.image_D[rows_d]
        named = [detections.table.labels[k] for k in detections.category_D[rows_d].tolist()]
        if kind == "label":
            meant = [truth.categories[truth.category_N[n]] for n in kinds.target_D[rows_d].tolist()]
            named = [f"{true} answered as {predicted}" for true, predicted in zip(meant, named, strict=True)]
    name, times = Counter(named).most_common(1)[0]
    often = f", most often {name} ({times:,})" if times > 1 else ""
    text = f"{count:,} of {total:,} errors {_IN_WORDS[kind]}{often}. Repairing them gains {cost:.3f} of AP50."
    return CostlyError(kind, text, frozenset(images.tolist()))
