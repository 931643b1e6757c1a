"""The images of a report: which are shown, how they can be filtered, and their answers coloured by fate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coord_codec.counts import counted
from coord_codec.pages import Card, Gallery, fate_legend, notes
from coord_eval.match.matching import AREAS
from coord_eval.metrics.detection import image_table
from coord_eval.metrics.errors import ERROR_KINDS, ErrorKinds
from coord_eval.metrics.sums import ratio
from coord_eval.metrics.thresholds import best_threshold
from coord_eval.page_options import ImageRoot
from coord_eval.report.answers import answer_key, coloured_answer
from coord_eval.report.findings import CostlyError
from coord_eval.report.overlay import Overlays, RowsOfImages, label_colours, shown_name
from coord_eval.report.photograph import finder, link_to

if TYPE_CHECKING:
    from coord_eval.metrics.figures import Figures

_SORTS = (
    ("lowest F1", False),
    ("highest F1", True),
    ("most errors", True),
    ("most confident error", True),
    ("smallest object", False),
    ("most objects", True),
)


def drawn_from(evaluation: Figures) -> float | None:
    """Return the threshold of the score from which boxes are drawn: that of the best F1; None for all boxes."""
    best = best_threshold(evaluation) if evaluation.shape_pairs is None else None
    return best["threshold"] if best else None


def f1_of_images(evaluation: Figures, threshold: float | None) -> np.ndarray:
    """Return F1 of each image at IoU .5, of the boxes drawn from a threshold of the score on; 1 for nothing at all.

    That of shapes is at the lowest threshold of their measure.
    """
    pairs = evaluation.shape_pairs
    if pairs is None and threshold is None:
        return np.array(image_table(evaluation)["f1"])
    if pairs is not None:
        hit_D, counted_D = pairs.similarity_D > 0, pairs.similarity_D >= 0
    else:
        is_drawn_D, ranked = evaluation.detections.scores_D >= threshold, evaluation.ranked
        hit_D, counted_D = is_drawn_D & ranked.hit_TD[0], is_drawn_D & ~ranked.ignored_TD[0]
    hits_I, all_I = evaluation.sum_detections(hit_D), evaluation.sum_detections(counted_D)
    return ratio(2 * hits_I, all_I + evaluation.objects_per_image, 1.0)


def choose_images(f1_I: np.ndarray, findings: Sequence[CostlyError], limit: int) -> list[int]:
    """Return at most `limit` images by ascending F1: some for each finding, half of the others worst, half best."""
    order: list[int] = np.argsort(f1_I, kind="stable").tolist()
    if len(order) <= limit:
        return order
    best = limit // 2
    chosen = set(order[len(order) - best :])
    for finding in findings:
        chosen.update([image for image in order if image in finding.images][: limit // (4 * len(findings))])
    others = [image for image in order if image not in chosen]
    chosen.update(others[: max(limit - len(chosen), 0)])
    return [image for image in order if image in chosen]


def images_html(
    evaluation: Figures,
    root: ImageRoot | None,
    chosen: Sequence[int],
    f1_I: np.ndarray,
    threshold: float | None,
    kinds: ErrorKinds,
    folder: Path,
) -> tuple[str, list[int]]:
    """Return the gallery of the chosen images and the images that it shows: all, unless their size is too large.

    Boxes are drawn from a threshold of the score on, and a slider sets another. The images link to their files,
    relative to the `folder` of the page.
    """
    root = None if root is None else finder(root)
    images = Gallery(evaluation.detections.table.labels, len(chosen))
    overlays = Overlays(evaluation, root, images, threshold)
    if threshold is not None:
        scores_D = evaluation.detections.scores_D
        images.scores = float(scores_D.min()), threshold, float(scores_D.max())
    objects = _ObjectTokens(evaluation, kinds)
    for image in chosen:
        if images.is_full:
            break
        svg = overlays.draw(image)
        name = shown_name(evaluation.truth, image)
        tokens, errors, confident, smallest = objects.of(image)
        f1 = float(f1_I[image])
        count = int(evaluation.objects_per_image[image])
        text, answer = evaluation.answers.get(image, ("", None))
        folded = ""
        if text:
            if answer is not None and answer.dropped:
                tokens = [*tokens, ("dropped", -1, "")]
            folded = f"<details><summary>answer</summary>{coloured_answer(text, answer)}</details>"
        link = link_to(root, evaluation.truth.file_names[image], folder)
        values = (f1, f1, errors, confident, smallest, count)
        images.add(Card(svg, f"{name}: F1 {f1:.2f}", folded, tokens, values, link=link))
    lines = images.notes
    if threshold is not None:
        below = int((scores_D < threshold).sum())
        lines.append(
            f"boxes are drawn, and counted in the F1 of their image, from a score of {threshold:.3g} on, which gives "
            f"the best F1 of the whole set; the slider shows {counted(below, 'box', 'boxes')} of lower scores, which "
            "findings and filters count too"
        )
    shown = list(chosen[: len(images.cards)])
    if len(shown) < len(chosen):
        lines.append(f"{len(chosen) - len(shown)} further images would make the page larger than 25 MB")
    if len(chosen) < len(f1_I):
        lines.append(f"{len(shown)} of {len(f1_I)} images are shown: examples of the findings, the worst and the best")
    named = {name: name.replace("_", " ") for name in ERROR_KINDS} | {"hit": "hit", "dropped": "dropped pieces"}
    legend = fate_legend() + label_colours(evaluation) + (answer_key() if evaluation.answers else "")
    present = {kind for card in images.cards for kind, *_ in card.objects}
    named = {kind: name for kind, name in named.items() if kind in present}
    return legend + notes(lines) + images.html(kinds=named, sorts=_SORTS), shown


class _ObjectTokens:
    """What the gallery filters and sorts by: the kinds, labels and sizes of the objects and boxes of each image."""

    def __init__(self, evaluation: Figures, kinds: ErrorKinds) -> None:
        self._scored = evaluation
        names = np.array([*ERROR_KINDS, "hit", ""])
        hit_D = evaluation.ranked.hit_TD[0]
        self._kind_D = names[np.where(hit_D, len(ERROR_KINDS), np.where(kinds.kind_D < 0, -1, kinds.kind_D))]
        self._target_D, self._missed_N = kinds.target_D, kinds.missed_N
        truth, detections = evaluation.truth, evaluation.detections
        self._rows_d = RowsOfImages(detections.image_D, np.nonzero(self._kind_D != "")[0])
        self._objects_n = RowsOfImages(truth.image_N)

    def of(self, image: int) -> tuple[list[tuple[str, int, str]], int, float, float]:
        """Return the tokens of an image, its number of errors, their highest score, and the smallest area."""
        truth, detections = self._scored.truth, self._scored.detections
        objects_n = self._objects_n[image].tolist()
        tokens, scores = [], []
        for d in self._rows_d[image].tolist():
            kind, size = str(self._kind_D[d]), _size_name(float(detections.boxes_D4[d, 2:].prod()))
            tokens.append((kind, int(detections.category_D[d]), size))
            if kind != "hit":
                scores.append(float(detections.scores_D[d]))
                if (target := int(self._target_D[d])) >= 0:  # an error of a name belongs to both names
                    tokens.append((kind, int(truth.category_N[target]), size))
        missed = [n for n in objects_n if self._missed_N[n]]
        for kind, listed_n in (("missed", missed), ("", objects_n)):
            tokens += [(kind, int(truth.category_N[n]), _size_name(float(truth.area_N[n]))) for n in listed_n]
        smallest = float(truth.area_N[objects_n].min(initial=1e12))
        return tokens, len(scores) + len(missed), max(scores, default=-1.0), smallest


def _size_name(area: float) -> str:
    names = ("small", "medium", "large")
    return next((name for name, (_, high) in zip(names, AREAS[1:], strict=True) if area < high), names[-1])
