"""Images with an EXIF orientation: do their boxes refer to the upright image, as training sees it?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coord_eval.diagnosis import INVERSE_TURN, TURNS
from coord_trainer.inspection.images import ImageFile, look_at
from coord_trainer.inspection.numbers.edges import EdgeMaps, z_value
from coord_trainer.inspection.numbers.findings import Finding
from coord_trainer.inspection.numbers.raw import RawBoxes

_LOOKED_AT = 60
_CLEAR = 2.0  # z over boxes, of three ways


def examine_turned(
    raw: RawBoxes, files: Sequence[ImageFile], root: Path, boxes_N4: np.ndarray
) -> tuple[list[Finding], set[int]]:
    """Return the finding, and the images whose stated size is that before turning.

    Args:
        raw: the numbers of the set
        files: what is known of its images
        root: the folder of the images
        boxes_N4: corners in [0, 1]
    """
    turned = [i for i, file in enumerate(files) if file.orientation != 1 and file.size]
    if not turned:
        return [], set()
    swapped = {i for i in turned if tuple(raw.stated_I2[i]) == files[i].size[::-1] != files[i].size}
    as_they_are, best, z = _compare(raw, files, root, boxes_N4, turned[:_LOOKED_AT])
    evidence = f"edge contrast of the boxes {as_they_are:.3f} on the pixels as training sees them, {best:.3f} turned"
    evidence += f", z {z:.1f}; {len(swapped)} stated sizes are those before turning"
    count = len(turned)
    if swapped or z >= _CLEAR:
        message = "images carry an EXIF orientation, and their boxes refer to another one than training sees (upright)"
        fix = "draw the boxes on the upright images, or remove the tag if the stored pixels are upright"
        return [Finding("exif", "error", message, evidence, count, fix)], swapped
    if z <= -_CLEAR:
        message = "images carry an EXIF orientation; their boxes fit the upright image, as training sees it"
        return [Finding("exif", "note", message, evidence, count, "remove the tag, which viewers obey")], swapped
    message = "images carry an EXIF orientation, and whether their boxes were drawn on the upright image cannot be told"
    return [
        Finding("exif", "warning", message, evidence, count, "look at them on the page, and remove the tag")
    ], swapped


def _compare(
    raw: RawBoxes, files: Sequence[ImageFile], root: Path, boxes_N4: np.ndarray, turned: Sequence[int]
) -> tuple[float, float, float]:
    """Return the contrast of the boxes as they are, of the best turn, and z of the difference over boxes."""
    smalls = [look_at(root / raw.files[i], keep=True).small for i in turned]
    maps = EdgeMaps.of([small for small in smalls if small is not None])
    place = {image: k for k, image in enumerate(i for i, small in zip(turned, smalls, strict=True) if small)}
    rows = [n for n, image in enumerate(raw.image_N.tolist()) if image in place]
    if not rows:
        return 0.0, 0.0, 0.0
    boxes_n4 = boxes_N4[rows]
    owner_n = np.array([place[image] for image in raw.image_N[rows].tolist()])
    orientation_n = np.array([files[image].orientation for image in raw.image_N[rows].tolist()])
    own_n = maps.contrast(boxes_n4, owner_n)
    ways = []
    for back in (False, True):
        moved_n4 = boxes_n4.copy()
        for turn in set(orientation_n.tolist()):
            chosen = orientation_n == turn
            moved_n4[chosen] = TURNS[INVERSE_TURN[turn] if back else turn](boxes_n4[chosen])
        ways.append(maps.contrast(moved_n4, owner_n))
    best_n = max(ways, key=lambda way: np.nan_to_num(np.nanmean(way)) if np.isfinite(way).any() else -1.0)
    means = [float(np.nanmean(v)) if np.isfinite(v).any() else 0.0 for v in (own_n, best_n)]
    return means[0], means[1], z_value(best_n - own_n)
