"""Draws the boxes of all answers into images, and writes one page that shows them."""

from __future__ import annotations

import base64
import io
from collections import Counter
from pathlib import Path
from urllib.parse import quote

from coord_codec.counts import counted
from coord_codec.files import write_text
from coord_eval import ImageError, decode_image
from coord_eval.html import page, safe, section, table
from coord_trainer.detect.file_names import places_of
from coord_trainer.detect.image_sources import Sources
from coord_trainer.detect.objects import DetectedObject, ImageDetections
from coord_trainer.detect.session import DRAWN, PAGE, Answered
from coord_trainer.detect.written import write_tracked_files

SHOWN = 200
"""Most images on the page; all of them are drawn."""


def draw_answers(answered: Answered, sources: Sources) -> Path:
    """Write `drawn/` and index.html into the output folder; returns the page.

    Args:
        answered: the answers
        sources: their images
    """
    paths = {source.name: source.path for source in sources.images}
    figures = []
    records = [record for record in answered.records if "objects" in record]
    places = places_of((record["image"] for record in records), answered.folder / DRAWN, ".jpg")

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
            detections.drawn(1600).save(part / name, "JPEG", quality=88)
            if len(figures) < SHOWN:
                figures.append(_figure(record["image"], detections, name.as_posix()))
        return part / DRAWN

    write_tracked_files(answered.folder, draw, keep=places.values())
    labels = Counter(item["desc"] for record in records for item in record["objects"])
    found = counted(labels.total(), "box", "boxes")
    body = section(
        "Found",
        f"<p>{counted(len(records), 'image')} answered, {found}; {counted(len(answered.failed), 'image')} without an "
        "answer.</p>" + table(("label", "boxes"), labels.most_common(40)),
    )
    if answered.failed:
        rows = [(record["image"], record.get("error", "")) for record in answered.failed[:SHOWN]]
        body += section("Without an answer", table(("image", "reason"), rows))
    note = ""
    if len(records) > len(figures):
        note = f"<p>The first {counted(len(figures), 'image')}; all are in {DRAWN}/.</p>"
    body += section("Images", note + f'<div class="images">{"".join(figures)}</div>')
    write_text(answered.folder / PAGE, page(f"{found} in {counted(len(records), 'image')}", body))
    return answered.folder / PAGE


def _figure(name: str, detections: ImageDetections, link: str) -> str:
    buffer = io.BytesIO()
    detections.drawn(480).save(buffer, "JPEG", quality=80)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    caption = f"{safe(name)}: {counted(len(detections), 'box', 'boxes')}"
    if detections.finish_reason == "length":
        caption += ", cut off by the length limit"
    url = quote(link, errors="surrogateescape")  # keeps the bytes of a name that is not UTF-8
    return (
        f'<figure><a href="{url}"><img alt="{safe(name)}" style="width:100%;border-radius:8px" '
        f'src="data:image/jpeg;base64,{data}"></a><figcaption>{caption}</figcaption></figure>'
    )
