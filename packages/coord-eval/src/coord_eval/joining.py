"""Finds the image that each answer is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from coord_eval.errors import InputError
from coord_eval.truth import GroundTruth, ImageId

_SHOWN = 5


@dataclass(frozen=True)
class JoinReport:
    """How answers and images met.

    Attributes:
        images: Images of the ground truth.
        answered: Those with an answer; the others count as answered with nothing.
        by_name: Answers without an image id, joined by file name.
        unknown: Answers about images that the ground truth doesn't have, left out.
        unknown_examples: The first few of those.
    """

    images: int
    answered: int
    by_name: int
    unknown: int
    unknown_examples: tuple[str, ...]


class ImageIndex:
    """Looks images up by id, or by file name where an answer has no id."""

    def __init__(self, truth: GroundTruth) -> None:
        self._ids: dict[ImageId, int] = {image_id: i for i, image_id in enumerate(truth.image_ids)}
        # "42" and 42 are one image, unless the data set has both.
        for i, image_id in enumerate(truth.image_ids):
            self._ids.setdefault(str(image_id), i)
        self._names: dict[str, int | None] = {}
        for i, name in enumerate(truth.file_names):
            for key in {_path(name), PurePosixPath(_path(name)).name} - {"."}:
                self._names[key] = None if key in self._names else i

    def by_id(self, image_id: ImageId) -> int | None:
        """Return the index of the image with that id."""
        found = self._ids.get(image_id)
        return self._ids.get(str(image_id)) if found is None else found

    def by_name(self, name: str) -> int | None:
        """Return the index of the image with that path, or that last part of it where only one has it."""
        path = _path(name)
        found = self._names.get(path)
        return self._names.get(PurePosixPath(path).name) if found is None else found


def join(
    truth: GroundTruth, keys: Iterable[tuple[ImageId | None, str | None, str]]
) -> tuple[list[int], JoinReport]:
    """Find the image of each answer.

    Args:
        truth: The images.
        keys: Image id, file name and place in the file of each answer.

    Returns:
        The image index of each answer, -1 for unknown images, and the report.

    Raises:
        InputError: When two answers are about one image, none is about any, or id and file name disagree.
    """
    index = ImageIndex(truth)
    owner: dict[int, str] = {}
    images: list[int] = []
    by_name, unknown = 0, []
    for image_id, name, where in keys:
        image = index.by_id(image_id) if image_id is not None else index.by_name(name or "")
        if image is None:
            unknown.append(repr(name if image_id is None else image_id))
            images.append(-1)
            continue
        by_name += image_id is None
        if image_id is not None and name and index.by_name(name) not in (None, image):
            raise InputError(
                f"{where}: image_id {image_id!r} is {truth.file_names[image]!r} in the ground truth, and not {name!r}; "
                "are these files of one data set?"
            )
        if image in owner:
            raise InputError(
                f"{where}: a second answer for image {truth.image_ids[image]!r}, the first is at "
                f"{owner[image]}; keep one answer an image"
            )
        owner[image] = where
        images.append(image)
    check_any_known(len(images), len(unknown), unknown, truth)
    return images, JoinReport(len(truth), len(owner), by_name, len(unknown), tuple(unknown[:_SHOWN]))


def check_any_known(total: int, unknown: int, examples: list[str], truth: GroundTruth) -> None:
    """Raise when there are answers and none of them is about an image of the ground truth."""
    if total and unknown == total:
        raise InputError(
            f"none of the {total} predictions is about an image of the ground truth: they say {examples[0]}, "
            f"it has {truth.image_ids[0] if len(truth) else 'no images'!r}; are these files of one data set?"
        )


def _path(name: str) -> str:
    return str(PurePosixPath(name.replace("\\", "/")))
