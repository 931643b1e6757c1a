"""Checks whether the boxes of images with an EXIF orientation refer to the upright image, which training uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coord_codec.box_transforms import INVERSE_TURN, TURNS
from coord_data.finding import Finding
from coord_data.inspection.numbers.differences import command
from coord_data.inspection.numbers.edges import EdgeMaps, z_value
from coord_data.inspection.numbers.laid_out import LaidOut
from coord_data.looking.look import look_at
from coord_data.looking.looks import Looks
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import STORED, Change, ReadAs

_COMPARED = 60  # images at most
_CLEAR = 2.0  # z over boxes from which the best of three orientations counts


def examine_turned(
    raw: RawBoxes, looks: Looks, root: Path, boxes: LaidOut, rival: LaidOut | None = None
) -> tuple[list[Finding], set[int]]:
    """Return the finding, and the indices of images whose stated size is that of the stored pixels.

    A rotation of the boxes is compared with them, or with a rival reading of the numbers.
    """
    sizes_I2 = looks.sizes
    is_rotated_I = (looks.orientations != 1) & sizes_I2.all(axis=1)
    rotated = np.flatnonzero(is_rotated_I).tolist()
    if not rotated:
        return [], set()
    is_swapped_I = (raw.stated_I2 == sizes_I2[:, ::-1]).all(axis=1) & (sizes_I2[:, 0] != sizes_I2[:, 1])
    swapped = set(np.flatnonzero(is_rotated_I & is_swapped_I).tolist())
    unchanged, best, z, z_stored = _compare(raw, looks, root, boxes, rival or boxes, rotated[:_COMPARED])
    evidence = f"edge contrast of the boxes on the upright images: {unchanged:.3f} as stated, {best:.3f} rotated"
    evidence += f", z {z:.1f}; {len(swapped)} stated sizes are those before rotation"
    count = len(rotated)
    if swapped or z >= _CLEAR:
        message = "images have an EXIF orientation, and their boxes do not refer to the upright image used in training"
        if z_stored >= _CLEAR or (len(swapped) == count and z_stored > -_CLEAR):  # tried: those boxes fit the pixels
            reading = ReadAs(changes=(Change(STORED),))
            return [Finding("exif", "error", message, evidence, count, command(reading), read_as=str(reading))], swapped
        fix = "draw the boxes on the upright images, or remove the tag if the stored pixels are upright"
        return [Finding("exif", "error", message, evidence, count, fix)], swapped
    if z <= -_CLEAR:
        message = "images have an EXIF orientation, and their boxes fit the upright image used in training"
        return [Finding("exif", "note", message, evidence, count, "other tools must apply the tag too")], swapped
    message = "images have an EXIF orientation, and it is unclear whether their boxes refer to the upright image"
    fix = "check them on the page, and store the images upright, without the tag"
    return [Finding("exif", "warning", message, evidence, count, fix)], swapped


def _compare(
    raw: RawBoxes, looks: Looks, root: Path, boxes: LaidOut, rival: LaidOut, rotated: Sequence[int]
) -> tuple[float, float, float, float]:
    """Return the edge contrast of the rival and of the boxes with the best rotation, and z of the difference.

    The last is z of boxes of the stored pixels, which is one of the two rotations.
    """
    thumbnails = [looks.thumbnail(i) or look_at(root / raw.files[i], keep=True).small for i in rotated]
    shown = {i: small for i, small in zip(rotated, thumbnails, strict=True) if small is not None}
    maps, place = EdgeMaps.of(shown.values()), {image: k for k, image in enumerate(shown)}
    rows = np.flatnonzero(np.isin(raw.image_N, list(place)))
    if not len(rows):
        return 0.0, 0.0, 0.0, 0.0
    boxes_n4, images = boxes.of(rows), raw.image_N[rows].tolist()
    owner_n = np.array([place[image] for image in images])
    orientation_n = looks.orientations[images]
    own_n = maps.contrast(rival.of(rows), owner_n)
    contrasts = []
    for inverse in (False, True):
        moved_n4 = boxes_n4.copy()
        for turn in set(orientation_n.tolist()):
            chosen = orientation_n == turn
            moved_n4[chosen] = TURNS[INVERSE_TURN[turn] if inverse else turn](boxes_n4[chosen])
        contrasts.append(maps.contrast(moved_n4, owner_n))
    best_n = max(contrasts, key=lambda c_n: np.nan_to_num(np.nanmean(c_n)) if np.isfinite(c_n).any() else -1.0)
    means = [float(np.nanmean(v)) if np.isfinite(v).any() else 0.0 for v in (own_n, best_n)]
    return means[0], means[1], z_value(best_n - own_n), z_value(contrasts[0] - own_n)
