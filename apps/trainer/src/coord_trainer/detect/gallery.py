"""The images of a session with their boxes drawn, and one page that shows them."""

from __future__ import annotations

import base64
import io
from collections import Counter
from pathlib import Path
from urllib.parse import quote

from coord_codec.files import atomic_write, write_text
from coord_eval import ImageError, decode_image
from coord_eval.html import page, safe, section, table
from coord_trainer.detect.objects import DetectedObject, Detections
from coord_trainer.detect.places import places_of
from coord_trainer.detect.session import DRAWN, PAGE, Answered
from coord_trainer.detect.sources import Sources

SHOWN = 200
"""Images on the page; all are drawn."""


def draw_answers(answered: Answered, sources: Sources, limit: int | None = None) -> Path:
    """Write `drawn/` and index.html into the folder of a session; returns the page.

    Args:
        answered: the session
        sources: its images
        limit: draw only the first so many
    """
    paths = {source.name: source.path for source in sources.images}
    figures = []
    records = [record for record in answered.records if "objects" in record]
    places = places_of((record["image"] for record in records), answered.folder / DRAWN, ".jpg")
    for record in records[:limit]:
        try:
            image = decode_image(paths[record["image"]])
        except ImageError:  # it was there when it was answered
            continue
        objects = map(DetectedObject.from_record, record["objects"])
        found = Detections(tuple(objects), image.size, record["text"], record["finish_reason"], image=image)
        target = places[record["image"]]
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target, "wb") as file:
            found.drawn(1600).save(file, "JPEG", quality=88)
        if len(figures) < SHOWN:
            figures.append(_figure(record["image"], found, target.relative_to(answered.folder).as_posix()))
    for old in set((answered.folder / DRAWN).rglob("*.jpg")) - set(places.values()):
        if old.is_file():  # of an image that an earlier call named; folders are called so too
            old.unlink()
    labels = Counter(item["desc"] for record in records for item in record["objects"])
    boxes = sum(labels.values())
    body = section(
        "Found",
        f"<p>{len(records):,} images answered, {boxes:,} boxes; {len(answered.failed)} images without an answer.</p>"
        + table(("label", "boxes"), [(name, count) for name, count in labels.most_common(40)]),
    )
    if answered.failed:
        rows = [(record["image"], record.get("error", "")) for record in answered.failed[:SHOWN]]
        body += section("Without an answer", table(("image", "reason"), rows))
    left = len(records) - len(figures)
    more = f"<p>The first {len(figures):,} images; all lie in {DRAWN}/.</p>" * (left > 0)
    body += section("Images", more + f'<div class="images">{"".join(figures)}</div>')
    write_text(answered.folder / PAGE, page(f"{boxes:,} boxes in {len(records):,} images", body))
    return answered.folder / PAGE


def _figure(name: str, found: Detections, link: str) -> str:
    buffer = io.BytesIO()
    found.drawn(480).save(buffer, "JPEG", quality=80)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    cut = ", cut off by the length limit" * (found.finish_reason == "length")
    caption = f"{safe(name)}: {len(found)} boxes{cut}"
    place = quote(link, errors="surrogateescape")  # the bytes of a name that is no UTF-8
    return (
        f'<figure><a href="{place}"><img alt="{safe(name)}" style="width:100%;border-radius:8px" '
        f'src="data:image/jpeg;base64,{data}"></a><figcaption>{caption}</figcaption></figure>'
    )
