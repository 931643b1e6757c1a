"""The part of inspect.html by which a person decides between two readings of the boxes: both, side by side.

Shapes: N boxes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coord_codec.pages import Drawn, Gallery, figure, image_svg, section
from coord_data.finding import Finding
from coord_data.inspection.examine import Examination
from coord_data.sources.read_as import ReadAs

_IMAGES = 6
_BOXES = 40  # of an image at most
_AS_STATED, _AS_PROPOSED = 0, 1  # colours
_ASKED = "Which of the two lies on the objects? Left: the boxes as stated. Right: as the finding would read them."


def sections_of_readings(examination: Examination) -> list[str]:
    """Return a section for each reading that findings propose, with the boxes as stated beside those of the reading."""
    by_reading: dict[str, list[Finding]] = {}
    for finding in examination.findings:
        if finding.read_as:
            by_reading.setdefault(finding.read_as, []).append(finding)
    sections = []
    for reading, findings in by_reading.items():
        if drawn := _side_by_side(examination, ReadAs.parse(reading)):
            codes = ", ".join(dict.fromkeys(finding.code for finding in findings))
            html = f'<p>{_ASKED}</p><div class="pairs readings">{drawn}</div>'
            sections.append(section(f"{codes}: as stated, and read as {reading}", html))
    return sections


def _side_by_side(examination: Examination, reading: ReadAs) -> str:
    """Return figures of images with boxes, spread over the set, each drawn with its boxes under both readings."""
    raw, files = examination.raw, examination.files
    unit = "stated" if raw.unit == "pixels" else raw.unit
    with_boxes = np.setdiff1d(np.unique(raw.image_N), list(files.faults)).tolist()
    places = np.unique(np.linspace(0, len(with_boxes) - 1, min(_IMAGES, len(with_boxes))).round()).astype(int)
    images, figures = Gallery(expected=len(places)), list[str]()
    for image in (with_boxes[place] for place in places.tolist()):
        pixels = images.read(raw.files[image], examination.root / raw.files[image])
        if pixels is None:  # of a large set, images that were not looked at may be missing
            continue
        data = images.embed(pixels)
        rows_N = np.flatnonzero(raw.image_N == image)[:_BOXES]
        size_N2 = np.tile(files.sizes[image], (len(rows_N), 1))
        stated_N2 = np.where(np.isfinite(raw.stated_I2[image]), raw.stated_I2[image], size_N2)
        pictures = []
        for read_as, slot in ((ReadAs(), _AS_STATED), (reading, _AS_PROPOSED)):
            of_image = read_as.of_image(int(files.orientations[image]))
            boxes_N4 = of_image.of_format(raw.layout, unit).corners(raw.numbers_N4[rows_N], size_N2, stated_N2)
            drawn = _drawn(boxes_N4, [raw.label(row) for row in rows_N.tolist()], slot)
            pictures.append(image_svg(raw.files[image], pixels.size, drawn, data))
        figures.append(figure(" ".join(pictures), raw.files[image]))
    return "".join(figures)


def _drawn(boxes_N4: np.ndarray, labels: Sequence[str], slot: int) -> list[Drawn]:
    """Return boxes to draw, without those that have no area."""
    corners = boxes_N4.clip(-1, 2).tolist()
    drawn = zip(labels, corners, strict=True)
    return [Drawn(label, box, slot=slot, named=False) for label, box in drawn if box[0] < box[2] and box[1] < box[3]]
