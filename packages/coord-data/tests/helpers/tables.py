"""Boxes and looks from written rows, the figures that a finding states, and the boxes that a page draws."""

import re

import numpy as np

from coord_data.looking.looks import ImageFile, Looks
from coord_data.sources.raw_boxes import RawBoxes


def boxes(files, rows=(), sizes=None, layout="xyxy", unit="pixels"):
    """Return boxes of rows `(image, label, numbers)`, beside the sizes that the annotations state."""
    stated_I2 = np.full((len(files), 2), np.nan) if sizes is None else np.array(sizes, float)
    image_N, labels, numbers = [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
    return RawBoxes.of(tuple(files), stated_I2, np.array(image_N, int), numbers, labels, layout, unit)


def looks(*files):
    """Return looks at files, each a size or an `ImageFile`."""
    return Looks.of(enumerate(f if isinstance(f, ImageFile) else ImageFile(f, stored_size=f) for f in files))


def figures(text):
    """Return the numbers of a text, in order."""
    return [float(n.replace(",", "")) for n in re.findall(r"(?<![\w.])-?\d[\d,]*\.?\d*", text)]


def rects_of(html):
    """Return left, upper side, width and height of the boxes of a drawing."""
    rects = (dict(re.findall(r'(\w+)="([\d.]+)"', tag)) for tag in re.findall(r"<rect (?![^>]*ground)[^>]*>", html))
    return [tuple(float(rect[side]) for side in ("x", "y", "width", "height")) for rect in rects]
