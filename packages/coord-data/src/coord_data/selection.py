"""Chooses which images `prepare` writes: without duplicates, drawn by a seed, and split by their content."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from coord_codec import InputError, Instance, Object, Problem
from coord_codec.records import phrase_of
from coord_data.alike import (
    Pair,
    boxes_by_image,
    duplicates_in,
    is_same,
    is_same_object,
    near_duplicates,
    same_boxes_of,
)
from coord_data.image_file import ImageFile

DropDuplicates = Literal["exact", "near"]
"""Which images are left out: equal files, or also copies of another size or quality."""

Looks = Mapping[str, ImageFile]
"""What a look at each image told, by its path."""


@dataclass(frozen=True)
class Dropped:
    """A duplicate that is left out.

    Attributes:
        image: its path
        kept: path of the image that is kept
        how: what tells that they are the same
        same_boxes: whether both have the same boxes
    """

    image: str
    kept: str
    how: str
    same_boxes: bool

    @property
    def problem(self) -> Problem:
        """Why its records are left out."""
        return Problem(self.image, "image", f"left out (--drop-duplicates), as {self.kept} is kept: {self.how}")


def without_duplicates(
    instances: Sequence[Instance], looks: Looks, which: DropDuplicates, *, join: bool = False
) -> tuple[list[Instance], list[Dropped]]:
    """Return the records that are kept, and the images that are left out, each with the one kept.

    Several records of one image are no duplicates of each other.

    Args:
        instances: the records
        looks: what a look at each image told
        which: copies that are left out
        join: whether the kept image gets the objects that only its copies have
    """
    names, boxes = list(looks), boxes_by_image(instances)
    kept_as: dict[int, Pair] = {}
    for pair in sorted(duplicates_in(names, list(looks.values()), boxes), key=lambda pair: (pair.first, pair.second)):
        wanted = pair.kind == "equal" or (pair.kind == "copy" and which == "near")
        if wanted and pair.first not in kept_as:  # a copy of a copy may be none of the image that is kept
            kept_as.setdefault(pair.second, pair)
    dropped = [
        Dropped(one := names[at], other := names[pair.first], pair.how, same_boxes_of(one, other, boxes))
        for at, pair in sorted(kept_as.items())
    ]
    kept_name = {row.image: row.kept for row in dropped}
    copies = [instance for instance in instances if instance.image in kept_name]
    kept = [instance for instance in instances if instance.image not in kept_name]
    return (_joined(kept, copies, kept_name) if join else kept), dropped


def _joined(kept: Sequence[Instance], copies: Sequence[Instance], kept_name: Mapping[str, str]) -> list[Instance]:
    """Return the kept records with the objects that only copies have; a copy's phrase becomes a record of its own."""
    phrases = [copy for copy in copies if phrase_of(copy) is not None]
    added: dict[str, list[Object]] = {}
    for copy in copies:
        if phrase_of(copy) is None:
            added.setdefault(kept_name[copy.image], []).extend(copy.objects)
    joined = []
    for instance in kept:
        further = added.pop(instance.image, []) if phrase_of(instance) is None else []
        objects = list(instance.objects)
        objects += (new for new in further if not any(is_same_object(new, known) for known in objects))
        joined.append(instance.model_copy(update={"objects": tuple(objects)}) if further else instance)
    return [*joined, *(copy.model_copy(update={"image": kept_name[copy.image]}) for copy in phrases)]


def drawn(instances: Sequence[Instance], count: int, seed: int) -> list[Instance]:
    """Return the records of `count` images that are drawn, all records of an image together.

    Raises:
        InputError: there are fewer images.
    """
    names = list(dict.fromkeys(instance.image for instance in instances))
    if not 0 < count <= len(names):
        raise InputError(f"--count: expected 1 to {len(names)}, the number of usable images, found {count}")
    chosen = set(random.Random(seed).sample(names, count))
    return [instance for instance in instances if instance.image in chosen]


def split_by_content(
    instances: Sequence[Instance], looks: Looks, share: float
) -> tuple[dict[str, list[Instance]], list[dict[str, object]]]:
    """Return the instances of both splits, and the images of val that look like one in train.

    The split of an image depends on its content: copies, at any size and quality, stay together.

    Args:
        instances: the records
        looks: what a look at each image told
        share: share of the images that go to val.jsonl

    Raises:
        InputError: one of the splits has no image.
    """
    files = [looks[instance.image] for instance in instances]
    hashes = [file.look for file in files if file.look is not None]
    assert len(hashes) == len(files)  # images that cannot be decoded are left out
    pairs = [(i, j, bits) for i, j, bits in near_duplicates(hashes, hashes) if i < j]
    group = list(range(len(files)))
    for i, j, _ in pairs:
        if is_same(files[i].grey, files[j].grey):
            old, new = sorted((group[i], group[j]), key=lambda at: files[at].digest, reverse=True)
            group = [new if at == old else at for at in group]
    in_val = [int(files[at].digest[:16], 16) < share * 2**64 for at in group]
    splits: dict[str, list[Instance]] = {"train.jsonl": [], "val.jsonl": []}
    for instance, is_val in zip(instances, in_val, strict=True):
        splits["val.jsonl" if is_val else "train.jsonl"].append(instance)
    for name, part in splits.items():
        if not part:
            raise InputError(f"--split {share:g}: no image was assigned to {name}; choose another share, or add images")
    near: dict[int, dict[str, object]] = {}
    for i, j, bits in pairs:
        if in_val[i] != in_val[j]:
            val, train = (i, j) if in_val[i] else (j, i)
            near.setdefault(val, {"val": instances[val].image, "train": instances[train].image, "bits": bits})
    return splits, [row for _, row in sorted(near.items())]
