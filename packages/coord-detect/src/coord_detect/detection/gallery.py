"""Draws the boxes of all answers into images, and writes one page that shows them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_codec.pages import Card, Drawn, Gallery, image_svg, label_key, notes, page, section, table, tiles
from coord_detect.answers.objects import ImageDetections
from coord_detect.detection.image_sources import Sources
from coord_detect.detection.session import DRAWN, PAGE, Answered
from coord_detect.detection.written import write_tracked
from coord_eval import ImageError, decode_image, parse_answer
from coord_eval.html import answer_key, coloured_answer
from coord_eval.labelling import DetectedObject, one_line, places_of

if TYPE_CHECKING:
    from PIL import Image

SHOWN = 200
"""Most images on the page; all of them are drawn."""
_LONGEST = 22
"""Most characters of a label beside its score; the tooltip has all."""


def draw_answers(
    answered: Answered, sources: Sources, facts: Mapping[str, object] | None = None, remarks: Sequence[str] = ()
) -> Path:
    """Write `drawn/` and index.html into the output folder; returns the page.

    Below its heading are `facts`, such as the name of the model, and `remarks`: what became of the boxes.
    """
    paths = {source.name: source.path for source in sources.images}
    records = [record for record in answered.records if "objects" in record]
    places = places_of((record["image"] for record in records), answered.folder / DRAWN, ".jpg")

    labels = Counter(item["desc"] for record in records for item in record["objects"]).most_common()
    images = Gallery((label for label, _ in labels), min(len(records), SHOWN))

    def draw(part: Path) -> Path:
        (part / DRAWN).mkdir()
        for record in records:
            try:
                image = decode_image(paths[record["image"]])
            except ImageError:  # it could be opened when it was answered
                continue
            objects = map(DetectedObject.from_record, record["objects"])
            detections = ImageDetections(
                tuple(objects), image.size, record["text"], record["finish_reason"], image=image
            )
            name = places[record["image"]].relative_to(answered.folder)
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            detections.drawn(1600, images.slots).save(part / name, "JPEG", quality=88)
            if len(images.cards) < SHOWN and not images.is_full:
                images.add(_card(record["image"], image, detections, name.as_posix(), images))
        return part / DRAWN

    write_tracked(answered.folder, draw)
    boxes = sum(count for _, count in labels)
    body = tiles(
        [
            ("Images answered", f"{len(records):,}", f"{len(answered.failed):,} without an answer"),
            ("Boxes", f"{boxes:,}", counted(len(labels), "label")),
        ]
    )
    body += notes(remarks)
    count = len(images.cards)
    note = f"<p>The first {count:,} images; all are in {DRAWN}/.</p>" if len(records) > count else ""
    sorts = (("in the order of the images", False), ("least confident box", False), ("most boxes", True))
    shown = note + label_key(images.slots) + answer_key() + images.html(sorts=sorts)
    body += section("Images", shown, f"{count:,} of {len(records):,}")
    body += section("Labels", table(("label", "boxes"), labels, sortable=True), f"{len(labels):,}", True)
    if answered.failed:
        rows = [(record["image"], record.get("error", "")) for record in answered.failed[:SHOWN]]
        body += section("Without an answer", table(("image", "reason"), rows), f"{len(answered.failed):,}")
    about = {**(facts or {}), "folder": answered.folder.name, "date": time.strftime("%Y-%m-%d %H:%M")}
    write_text(answered.folder / PAGE, page(f"{boxes:,} boxes in {len(records):,} images", body, facts=about))
    return answered.folder / PAGE


def _caption(item: DetectedObject) -> str:
    """Return what is written beside a box: its label, shortened, and its score, which no shortening cuts off."""
    label = one_line(item.label)
    return f"{label if len(label) <= _LONGEST else f'{label[: _LONGEST - 1]}…'} {item.score:.2f}"


def _card(name: str, image: Image.Image, detections: ImageDetections, link: str, images: Gallery) -> Card:
    width, height = detections.size
    drawn = [
        Drawn(
            _caption(item),
            tuple(v / side for v, side in zip(item.box, (width, height) * 2, strict=True)),
            tip=f"{item.label}, score {item.score:.3g}",
            slot=images.slots[item.label],
            points=[(x / width, y / height) for x, y in item.points],
            kind=item.kind if item.points else None,
        )
        for item in detections
    ]
    truncated = ", cut off by the length limit" if detections.finish_reason == "length" else ""
    # Without a box nothing says which geometry the answer should have.
    parsed = parse_answer(detections.text, geometry=detections[0].geometry) if detections else None
    return Card(
        image_svg(name, detections.size, drawn, images.embed(image)),
        f"{name}: {counted(len(detections), 'box', 'boxes')}{truncated}",
        f"<details><summary>answer</summary>{coloured_answer(detections.text, parsed)}</details>",
        images.tokens(item.label for item in detections),
        (0, min((item.score for item in detections), default=1), len(detections)),
        link=quote(link, errors="surrogateescape"),  # keeps the bytes of a name that is not UTF-8
    )
