"""The page of a review: each suspicion with its image, label and answer over each other, and a decision by keyboard.

Without JavaScript everything can be read; decisions need it. They stay in the browser and are saved as a file, which
`coord_eval.review.apply_decisions` applies.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_codec.geometry.base import Box
from coord_codec.pages import Card, Drawn, Gallery, image_svg, notes, page, safe, section, table, tiles
from coord_eval.page_options import MOST_SHOWN, ImageRoot
from coord_eval.report.overlay import drawn_size, shown_name
from coord_eval.report.photograph import photograph
from coord_eval.review.decisions import CHOICES
from coord_eval.review.findings import KINDS, ReviewFinding
from coord_eval.review.judged import JudgedLabels

if TYPE_CHECKING:
    from PIL import Image

_LEAST_CUT, _MOST_CUT = 160, 480
"""Sides in pixels of the part of an image that is shown at 100 %; a larger part is reduced to the larger one."""
_LABEL, _ANSWER, _OTHER = 3, 0, 8
"""Places of the colours in the palette."""
FIGURES = {
    "support": "confidence of the answer of its name",
    "support_iou": "IoU with that answer",
    "rival": "confidence of an answer of another name there",
    "rival_iou": "IoU with that answer",
    "deviation": "distance of the sides from the answer's, 1 is usual",
    "miss_rate": "share of labels of this size without an answer",
    "twin_iou": "IoU with another label of its name",
    "name_surprise": "log-odds against its name, 0 is usual",
    "box_surprise": "log-odds against its coordinates, 0 is usual",
    "confidence": "confidence of the answer",
    "unmatched": "share of confident answers without a label",
}
"""What the figures of `Finding.evidence` are; `p_KIND` are the probabilities of the kinds."""


def choices_of(finding: ReviewFinding, names: Sequence[str]) -> list[str]:
    """Return the decisions that make sense for a suspicion about a label that may get one of these names."""
    said = finding.proposal
    is_name = said is not None and said.desc in names
    if finding.label is None:
        return ["keep", "add", "later"] if is_name else ["keep", "later"]
    taken = [] if said is None else ["box"]
    if said is not None and is_name and said.desc != finding.label:
        taken += ["name", "answer"]
    return ["keep", *taken, "delete", "later"]


def review_page(
    review: JudgedLabels,
    root: ImageRoot | None = None,
    title: str = "Review of labels",
    most: int = MOST_SHOWN,
    facts: Mapping[str, object] | None = None,
) -> str:
    """Return the page as HTML; the arguments are those of `Review.write`."""
    shown = review.findings[:most]
    names = [*review.truth.categories, *review.detections.unknown]
    cards = Gallery(names, 2 * len(shown))
    told = _add_cards(cards, review, shown, root or review.truth.root)
    if len(shown) < len(review.findings):
        told.append(f"the {len(shown)} most probable of {len(review.findings)} suspicions are shown; the file has all")
    sure = sum(finding.probability >= 0.5 for finding in review.findings)
    expected = sum(item.probability for item in review.judged)
    alone = ", by answers alone" if review.rests_on["likelihoods"] is None else ""
    kinds = Counter(finding.kind for finding in review.findings)
    of_kind = dict.fromkeys(KINDS, 0.0)
    for finding in review.findings:
        of_kind[finding.kind] += finding.probability
    rows = [(kind, KINDS[kind], kinds[kind], f"{of_kind[kind]:.1f}") for kind in KINDS if kinds[kind]]
    images = len({finding.image_id for finding in review.findings})
    shown_cards = cards.html(kinds={kind: kind for kind, *_ in rows}, sorts=_SORTS)
    parts = [
        tiles(
            [
                ("Labels judged", f"{len(review.judged):,}", counted(len(review.truth), "image")),
                ("Suspicions", f"{len(review.findings):,}", f"in {counted(images, 'image')}"),
                ("Of at least 50 %", f"{sure:,}", "look at these first"),
                ("Expected wrong labels", f"{expected:.1f}", f"sum of the probabilities{alone}"),
            ]
        ),
        notes(review.notes),
        section("Suspicions", _legend() + notes(told) + shown_cards, f"{len(shown)} of {len(review.findings)}"),
        section("Kinds", table(("kind", "meaning", "suspicions", "expected"), rows), folded=True) if rows else "",
        section("What it rests on", table(("", ""), _rests_on(review)), folded=True),
    ]
    ids = {"review": review.digest, "ground_truth": review.rests_on["ground_truth"], "choices": CHOICES}
    body = f'<div data-review="{safe(json.dumps(ids))}">{"".join(parts)}</div>'
    here = Path(__file__)
    return page(
        title,
        body,
        style=here.with_name("page.css").read_text(encoding="utf-8"),
        script=here.with_name("page.js").read_text(encoding="utf-8"),
        facts={**(facts or {}), "date": time.strftime("%Y-%m-%d %H:%M")},
    )


_SORTS = (("most probable", True), ("least probable", False), ("by image", False), ("smallest box", False))


def _rests_on(review: JudgedLabels) -> list[tuple[str, str]]:
    rows = []
    for name, value in review.rests_on.items():
        shares = [f"{kind} {share:.2%}" for kind, share in value.items()] if name == "rates" else []
        rows.append((name.replace("_", " "), ", ".join(shares) or str(value)))
    return rows


def _legend() -> str:
    samples = (("truth", _LABEL, "the label"), ("hit", _ANSWER, "the answer"), ("crowd", _OTHER, "other labels"))
    items = "".join(
        f'<span><svg viewBox="0 0 26 16" aria-hidden="true"><rect class="{fate} key c{slot} own" x="2" y="2" '
        f'width="22" height="12"/></svg>{safe(text)}</span>'
        for fate, slot, text in samples
    )
    keys = ", ".join(f"{key} {text}" for key, text in CHOICES.values())
    return (
        f'<p class="key">{items}</p><p class="hint" hidden>Decide about the chosen image by a key: {safe(keys)}, '
        "u undo. Decisions stay in this browser; save them as a file for <code>coord-eval review apply</code>.</p>"
    )


def _add_cards(
    cards: Gallery, review: JudgedLabels, findings: Sequence[ReviewFinding], root: ImageRoot | None
) -> list[str]:
    """Add a card for each suspicion; returns notes on images that are not shown."""
    number = {name: k for k, name in enumerate(cards.labels)}

    @lru_cache(maxsize=4)  # neighbours in the order of suspicions are often of one image
    def picture_of(i: int) -> Image.Image | None:
        return cards.read(shown_name(review.truth, i), lambda _: photograph(root, review.truth.file_names[i]))

    without, unreadable = 0, set[int]()
    for finding in findings:
        i = review.image_index[finding.image_id]
        without += cards.is_full
        picture = None if cards.is_full or i in unreadable else picture_of(i)
        if picture is None:
            unreadable.add(i)
        drawing = "".join(_drawings(cards, review, finding, i, picture))
        own = [finding.label, None if finding.proposal is None else finding.proposal.desc]
        tokens = [(finding.kind, number[name], "") for name in own if name is not None]
        box = finding.box_xyxy or (finding.proposal.box_xyxy if finding.proposal else (0.0, 0.0, 0.0, 0.0))
        area = (box[2] - box[0]) * (box[3] - box[1])
        figures = [(FIGURES[name], f"{value:.3g}") for name, value in finding.evidence.items() if name in FIGURES]
        shares = [(name[2:], f"{value:.3f}") for name, value in finding.evidence.items() if name.startswith("p_")]
        details = f"<details><summary>evidence</summary>{table(('', ''), [*figures, *shares])}</details>"
        record = safe(json.dumps({key: value for key, value in review.to_line(finding).items() if key != "evidence"}))
        choices = " ".join(choices_of(finding, review.truth.categories))
        p = finding.probability
        percent = "over 99 %" if p > 0.99 else f"{100 * p:.0f} %"
        case = (
            f'<div class="case" data-record="{record}" data-choices="{choices}">'
            f'<p class="verdict"><b>{percent}</b> {safe(sentence(finding))}</p>'
            f'<div class="pair">{drawing}</div><div class="choices"></div></div>'
        )
        cards.add(Card(case, shown_name(review.truth, i), details, tokens, (p, p, i, area)))
    lines = cards.notes
    if without:
        lines.append(f"{counted(without, 'suspicion')} without the image: the page would be larger than 25 MB")
    return lines


def sentence(finding: ReviewFinding) -> str:
    """Return what a suspicion says, in a few words."""
    proposal = finding.proposal
    said = "" if proposal is None else f"{proposal.desc!r} (score {proposal.score:.2f})"
    if finding.kind == "missing":
        return f"missing: {said}"
    is_named = said and finding.kind in ("renamed", "mixed")
    return f"{finding.kind}: {finding.label!r}" + (f", the answer says {said}" if is_named else "")


def _drawings(
    cards: Gallery, review: JudgedLabels, finding: ReviewFinding, i: int, picture: Image.Image | None
) -> Iterator[str]:
    """Yield the whole image, and the part around label and answer at 100 %."""
    truth = review.truth
    name = shown_name(truth, i)
    proposed = None if finding.proposal is None else finding.proposal.box_xyxy
    own = [box for box in (finding.box_xyxy, proposed) if box is not None]
    size = drawn_size(truth, i, np.array(own)[:, 2:])
    data = None if picture is None else cards.embed(picture)
    drawn = [*_others(review, finding, i, size), *_own(finding, (0.0, 0.0), size, named=True)]
    yield f'<figure class="whole">{image_svg(name, size, drawn, data)}</figure>'
    if picture is None:
        return
    # The part around the boxes, in pixels of the file
    factor = np.array([picture.width / size[0], picture.height / size[1]] * 2)
    table_k4 = np.array(own) * factor
    low, high = table_k4[:, :2].min(axis=0), table_k4[:, 2:].max(axis=0)
    sides = np.maximum(1.4 * (high - low) + 16, _LEAST_CUT)
    centre = (low + high) / 2
    start = np.floor(np.clip(centre - sides / 2, 0, None)).astype(int)
    stop = np.minimum(np.ceil(centre + sides / 2).astype(int), (picture.width, picture.height))
    start = np.minimum(start, np.maximum(stop - 1, 0))
    width, height = (stop - start).tolist()
    if width < 2 or height < 2:
        return
    shrink = min(1.0, _MOST_CUT / max(width, height))
    cut = picture.crop((*start.tolist(), *stop.tolist()))
    data = cards.embed(cut, max(width, height) * shrink)
    origin = (float(start[0] / factor[0]), float(start[1] / factor[1]))
    part = (width / factor[0], height / factor[1])
    svg = image_svg(f"{name}, the part around it", part, _own(finding, origin, part, named=False), data)
    caption = f"<figcaption>at {100 * shrink:.0f} %</figcaption>"
    yield f'<figure class="part" style="width:{width * shrink:.0f}px">{svg}{caption}</figure>'


def _own(finding: ReviewFinding, origin: tuple[float, float], size: tuple[float, float], *, named: bool) -> list[Drawn]:
    drawn = []
    if finding.box_xyxy is not None:
        box = _relative(finding.box_xyxy, origin, size)
        drawn.append(Drawn(finding.label or "", box, "truth", f"label: {finding.label}", _LABEL, named))
    if finding.proposal is not None:
        box = _relative(finding.proposal.box_xyxy, origin, size)
        tip = f"answer: {finding.proposal.desc}, score {finding.proposal.score:.3g}"
        drawn.append(Drawn(finding.proposal.desc, box, "hit", tip, _ANSWER, named))
    return drawn


def _others(review: JudgedLabels, finding: ReviewFinding, i: int, size: tuple[float, float]) -> list[Drawn]:
    truth = review.truth
    drawn = []
    for place, n in enumerate(np.nonzero(truth.image_N == i)[0].tolist()):
        if place != finding.object:
            name = truth.categories[truth.category_N[n]]
            box = _relative(LAYOUTS["xywh"](truth.boxes_N4[n : n + 1])[0], (0.0, 0.0), size)
            drawn.append(Drawn(name, box, "crowd", f"another label: {name}", _OTHER, named=False))
    return drawn


def _relative(box: ArrayLike, origin: tuple[float, float], size: tuple[float, float]) -> Box:
    x1, y1, x2, y2 = ((np.reshape(box, (2, 2)) - origin) / size).ravel().tolist()
    return x1, y1, x2, y2
