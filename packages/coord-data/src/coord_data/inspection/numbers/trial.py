"""Tries a correction before its command is printed.

It may move no box out of its image that is inside as stated, and its boxes have to be as plausible as those.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coord_codec.boxes import CLIP_PIXELS
from coord_codec.counts import counted
from coord_data.inspection.numbers.best_size import in_best_size
from coord_data.inspection.numbers.edges import Sample, is_inside, z_value
from coord_data.inspection.numbers.meaning import AS_GOOD
from coord_data.inspection.numbers.offsets import Offset
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import ReadAs

_COMPARED = 300  # boxes at most
_NEAR = 0.01
"""Change of a step, as a fraction of the image, up to which boxes that stay inside matter more than the best fit."""


def kept_inside(offset: Offset, boxes_N4: np.ndarray) -> Offset:
    """Return the move nearest to the one that fits best which leaves all boxes inside their images, if one is near."""
    inside_M4 = boxes_N4[is_inside(boxes_N4, 0.0)]
    if not len(inside_M4):
        return offset
    step_D = np.array(offset.step)
    if offset.code == "shifted":
        near_D = step_D.clip(-inside_M4[:, :2].min(axis=0), 1 - inside_M4[:, 2:].max(axis=0))
    elif offset.code == "resized":
        near_D = np.minimum(step_D, 1 / inside_M4.max())
    else:
        return offset
    is_near = bool((np.abs(near_D - step_D) <= _NEAR).all()) and offset.kind.is_reported(near_D)
    return replace(offset, step=tuple(near_D.tolist())) if is_near else offset


def objection_to(reading: ReadAs, raw: RawBoxes, own_N4: np.ndarray, sizes_I2: np.ndarray, sample: Sample) -> str:
    """Return what speaks against a reading, in words: boxes that would leave their images, or fit the pixels worse."""
    size_N2 = sizes_I2[raw.image_N]
    stated_N2 = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)[raw.image_N]
    unit = "stated" if raw.unit == "pixels" else raw.unit
    boxes_N4 = reading.of_format(raw.layout, unit).corners(raw.numbers_N4, size_N2, stated_N2)
    was_N, is_N = (_is_usable(corners_N4, size_N2) for corners_N4 in (own_N4, boxes_N4))
    lost = int((was_N & ~is_N).sum())
    if lost:
        return f"{counted(lost, 'box', 'boxes')} of {len(raw)} would leave their images by it"
    sample = sample.take(sample.spread(_COMPARED))
    (_, was_I), (_, is_I) = (in_best_size(corners_N4[sample.rows_n], sample) for corners_N4 in (own_N4, boxes_N4))
    z = z_value(is_I - was_I)
    return f"the boxes would fit the pixels worse by it (z {z:.1f})" if z <= -AS_GOOD else ""


def _is_usable(boxes_N4: np.ndarray, size_N2: np.ndarray) -> np.ndarray:
    """Return which boxes readers keep: with an area, and outside their image by no more than is clipped."""
    slack_N2 = CLIP_PIXELS / size_N2
    low_N2, high_N2 = boxes_N4[:, :2], boxes_N4[:, 2:]
    usable_N2 = (low_N2 < high_N2) & (low_N2 >= -slack_N2) & (high_N2 <= 1 + slack_N2)
    return usable_N2[:, 0] & usable_N2[:, 1]
