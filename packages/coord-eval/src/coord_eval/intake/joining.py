"""Finds the image of each answer and the category of each label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.labels import normalize_label
from coord_eval.boxes.ground_truth import GroundTruth, ImageId
from coord_eval.parse.answer import Answer, ParsedObject, without
from coord_eval.settings import LabelSettings, as_labels

_SHOWN = 5
LABEL_LAYERS = ("exact", "normalized", "synonym", "callback", "unknown")
"""Matching layers in the order in which they are tried; a label that none of them matches is `unknown`."""
UNANSWERED = "without an answer"
"""Words of the note on images that predictions have no record of."""


@dataclass(frozen=True)
class JoinReport:
    """How answers were assigned to images.

    Attributes:
        images: number of images of the ground truth
        answered: number of images with an answer; the others count as empty answers
        by_name: number of answers assigned by file name: those without an image id, and those whose id is a name
        unknown: number of answers for images that the ground truth does not have, left out
        unknown_examples: ids or names of the first few of those images
    """

    images: int
    answered: int
    by_name: int
    unknown: int
    unknown_examples: tuple[str, ...]

    @property
    def unanswered(self) -> str:
        """How many images are without an answer; empty if none is."""
        if self.answered == self.images:
            return ""
        images = counted(self.images, "image is", "images are")
        return f"{self.images - self.answered:,} of {images} {UNANSWERED}"


class IdIndex:
    """Index of the images by id and by file name."""

    def __init__(self, ground_truth: GroundTruth) -> None:
        # "42" and 42 denote the same image, unless the data set has both.
        ids = {image_id: i for i, image_id in enumerate(ground_truth.image_ids)}
        self._ids: dict[ImageId, int] = {**{str(image_id): i for image_id, i in ids.items()}, **ids}
        self._file_names = ground_truth.file_names

    @cached_property
    def _names(self) -> dict[str, int | None]:
        names: dict[str, int | None] = {}
        for i, name in enumerate(self._file_names):
            for key in {_path(name), PurePosixPath(_path(name)).name} - {"."}:
                names[key] = None if key in names else i
        return names

    @cached_property
    def _stems(self) -> dict[str, int | None]:
        stems: dict[str, int | None] = {}
        for i, name in enumerate(self._file_names):
            path = PurePosixPath(_path(name))
            for key in {str(path.with_suffix("")) if path.name else "", path.stem} - {"", "."}:
                stems[key] = None if key in stems else i
        return stems

    def by_id(self, image_id: ImageId) -> int | None:
        """Return the index of the image with that id."""
        index = self._ids.get(image_id)
        return self._ids.get(str(image_id)) if index is None else index

    def by_name(self, name: str) -> int | None:
        """Return the index of the image with that path, else with that base name if it is unique.

        A name without its suffix, as label files have it, is one of a path or of a unique base name too.
        """
        path = _path(name)
        keys = (path, PurePosixPath(path).name)
        found = (index for names in (self._names, self._stems) for key in keys if (index := names.get(key)) is not None)
        return next(found, None)


def join(
    ground_truth: GroundTruth, keys: Iterable[tuple[ImageId | None, str | None, str, object]]
) -> tuple[list[int], JoinReport]:
    """Return the image index of each answer, -1 for an unknown image, and the report.

    The keys are image id, file name, position in the file and part of each answer: the label or tile that the model was
    asked for, which distinguishes several answers for one image.

    Raises:
        InputError: if two answers are for the same part of an image, if none is for a known image, or if id and name
            disagree
    """
    index = IdIndex(ground_truth)
    first_answer: dict[tuple[int, object], str] = {}
    images: list[int] = []
    by_name, unknown = 0, []
    for image_id, name, where, part in keys:
        image = None if image_id is None else index.by_id(image_id)
        is_by_name = image is None and not isinstance(image_id, int)
        if is_by_name:  # answers about a folder of images have the names as ids
            image = index.by_name(str(image_id or name or ""))
        if image is None:
            unknown.append(repr(name if image_id is None else image_id))
            images.append(-1)
            continue
        by_name += is_by_name
        if image_id is not None and name and index.by_name(name) not in (None, image):
            raise InputError(
                f"{where}: image_id {image_id!r} is {ground_truth.file_names[image]!r} in the ground truth, and not "
                f"{name!r}; are these files of one data set?"
            )
        if (image, part) in first_answer:
            raise InputError(
                f"{where}: a second answer for image {ground_truth.image_ids[image]!r}, the first is at "
                f"{first_answer[image, part]}; keep one answer an image, or give each its `label` or `tile`"
            )
        first_answer[image, part] = where
        images.append(image)
    check_any_known(len(images), unknown, ground_truth)
    return images, JoinReport(len(ground_truth), len({*images} - {-1}), by_name, len(unknown), tuple(unknown[:_SHOWN]))


def check_any_known(total: int, unknown: Sequence[str], ground_truth: GroundTruth) -> None:
    """Raise if there are answers and none of them is for an image of the ground truth."""
    if total and len(unknown) == total:
        first = ground_truth.image_ids[0] if len(ground_truth) else "no image"
        raise InputError(
            f"none of {counted(total, 'prediction')} is about an image of the ground truth: the first is about "
            f"{unknown[0]}, the ground truth begins with {first!r}; are these files of one data set?"
        )


def _path(name: str) -> str:
    return str(PurePosixPath(name.replace("\\", "/")))


def with_prompt_label(answer: Answer, label: str | None) -> Answer:
    """Give boxes without a label, or with an uncertain one (format `lists`), the label that the prompt asked for."""
    if label is None:
        return answer
    from coord_eval.parse.formats import LISTS

    def named(item: ParsedObject) -> ParsedObject:
        if item.desc and answer.format != LISTS.name:
            return item
        repairs = tuple(repair for repair in item.repairs if repair != "no_label")
        state = "complete" if item.completeness == "repaired" and not repairs else item.completeness
        return item._replace(desc=label, repairs=repairs, completeness=state)

    return replace(answer, objects=tuple(map(named, answer)))


def without_labels(answer: Answer, labels: str | Sequence[str]) -> Answer:
    """Drop the objects with one of these labels; an answer of them alone is empty, one of them and faults failed."""
    labels = as_labels(labels)
    kept = without(answer, lambda item: item.desc in labels, "ignored_label")
    if kept is answer:
        return answer
    return replace(kept, status=answer.status if kept.objects else "failed" if answer.dropped else "empty")


@dataclass
class LabelMatcher:
    """Finds the category of a label among the category names of a data set."""

    categories: Sequence[str]
    settings: LabelSettings = LabelSettings()

    def __post_init__(self) -> None:
        self._exact = {name: i for i, name in enumerate(self.categories)}
        if len(self._exact) != len(self.categories):
            repeated = next(n for i, n in enumerate(self.categories) if n in self.categories[:i])
            raise InputError(
                f"categories: two are called {repeated!r}, and text answers cannot distinguish them; rename one"
            )
        self._normalized: dict[str, int | None] = {}
        for name, index in self._exact.items():
            key = normalize_label(name)
            # Two categories with the same normalised name (Polish and polish) are matched by the exact layer only.
            self._normalized[key] = None if key in self._normalized else index
        self._synonyms: dict[str, int] = {}
        for name, others in self.settings.other_names.items():
            if name not in self._exact:
                raise InputError(f"synonyms: {name!r} is not a category; the keys must be category names")
            for other in [others] if isinstance(others, str) else others:
                key = normalize_label(other)
                if self._synonyms.setdefault(key, self._exact[name]) != self._exact[name]:
                    raise InputError(f"synonyms: {other!r} stands for two categories; keep one")
        self._cache: dict[str, tuple[int | None, str]] = {}

    def match(self, label: str) -> tuple[int | None, str]:
        """Return the index of the category, None if unknown, and the layer that matched it."""
        if label not in self._cache:
            self._cache[label] = self._look_up(label)
        return self._cache[label]

    def _look_up(self, label: str) -> tuple[int | None, str]:
        if label in self._exact:
            return self._exact[label], "exact"
        key = normalize_label(label)
        if (index := self._normalized.get(key)) is not None:
            return index, "normalized"
        if key in self._synonyms:
            return self._synonyms[key], "synonym"
        if (callback := self.settings.label_callback) is not None and (name := callback(label)) is not None:
            if name not in self._exact:
                raise InputError(f"label callback: returned {name!r} for {label!r}, which is not a category")
            return self._exact[name], "callback"
        return None, "unknown"
