"""Exports a review for labelling tools: its images in the order of the suspicions, with the proposals applied."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec.box_transforms import LAYOUTS
from coord_codec.files import InputError, read_bytes, write_text
from coord_eval.boxes.sorting import places_in_images
from coord_eval.labelling.formats import EXPORTS
from coord_eval.review.findings import ReviewFinding
from coord_eval.review.result import Review

TOOLS = ("labelstudio", "cvat", "coco", "fiftyone")
"""Names of the exports of a review, which are forms of `coord_eval.labelling.formats.EXPORTS`."""
APPLIED = 0.5
"""Probability from which on a proposal takes the place of the label."""


def proposed_records(review: Review) -> list[dict[str, Any]]:
    """Return a record for each image with a suspicion, the most suspect first, as predictions hold them.

    Its objects are the labels, with the proposals of probable suspicions in their place; `score` is the probability
    that each is right. Crowd regions are left out.

    Raises:
        InputError: if the labels are drawn as other shapes than boxes, which would be lost, or the ground truth states
            no sizes, without which labelling tools cannot place a box
    """
    truth = review.truth
    if truth.drawn:
        raise InputError(
            f"export: the labels are drawn as {', '.join(truth.drawn)}, and a review has only their boxes; decide on "
            "its page instead"
        )
    of_image: dict[int, list[ReviewFinding]] = {}
    for finding in review.findings:
        of_image.setdefault(review.image_index[finding.image_id], []).append(finding)
    if of_image and not (truth.sizes_known and np.isfinite(truth.sizes_I2[list(of_image)]).all()):
        raise InputError("export: the ground truth states no image sizes, which labelling tools need; add them")
    places_N, corners_N4 = places_in_images(truth.image_N), LAYOUTS["xywh"](truth.boxes_N4)
    records = []
    for image, findings in of_image.items():
        suspected = {finding.object: finding for finding in findings if finding.object is not None}
        objects = []
        for n in np.nonzero((truth.image_N == image) & ~truth.crowd_N)[0].tolist():
            label = {"desc": truth.categories[truth.category_N[n]], "bbox_xyxy": corners_N4[n].tolist()}
            suspicion = suspected.get(int(places_N[n]))
            if suspicion is None:
                objects.append(label | {"score": 1.0})
            elif suspicion.probability < APPLIED:
                objects.append(label | {"score": 1 - suspicion.probability})
            else:
                objects += _proposed(suspicion)
        for finding in findings:
            if finding.object is None and finding.probability >= APPLIED:
                objects += _proposed(finding)
        width, height = truth.sizes_I2[image].tolist()
        named = {"image_id": truth.image_ids[image], "image": truth.file_names[image]}
        records.append({**named, "width": int(width), "height": int(height), "objects": objects})
    return records


def _proposed(finding: ReviewFinding) -> list[dict[str, Any]]:
    """Return what stands in place of a label: the proposal, or nothing."""
    said = finding.proposal
    if said is None:
        return []
    return [{"desc": said.desc, "bbox_xyxy": list(said.box_xyxy), "score": finding.probability}]


def write_review_exports(review: Review, folder: str | Path, tools: Sequence[str]) -> list[Path]:
    """Write files for labelling tools into a folder; return them.

    Args:
        review: the review
        folder: an existing folder
        tools: names of `TOOLS`

    Raises:
        InputError: for an unknown tool, labels that are no boxes, unknown sizes, or a file with another content
        OSError: if a file cannot be written
    """
    for tool in tools:
        if tool not in TOOLS:
            raise InputError(f"export: expected some of {', '.join(TOOLS)}, found {tool!r}")
    records = proposed_records(review)
    with tempfile.TemporaryDirectory() as name:
        made = [EXPORTS[tool](records, Path(name)) for tool in tools]
        texts = {Path(folder) / path.name: path.read_text(encoding="utf-8") for path in made}
    for path, text in texts.items():
        if path.exists() and read_bytes(path) != text.encode("utf-8", "replace"):
            raise InputError(f"export: {path} exists with another content and is not replaced; move it first")
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)
