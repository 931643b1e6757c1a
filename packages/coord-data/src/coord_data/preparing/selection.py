"""Chooses which images `prepare` writes: without duplicates, drawn by a seed, and split by their content."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coord_codec import InputError, Instance, Object, Problem
from coord_codec.records import phrase_of
from coord_data.looking.alike import Pair, are_copies, duplicates_in, is_same_object, near_duplicates
from coord_data.looking.looks import Looks

"""Which images are left out: equal files, or also copies of another size or quality."""


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
    instances: Sequence[Instance],
    names: Sequence[str],
    looks: Looks,
    which: Literal["exact", "near"],
    *,
    join: bool = False,
) -> tuple[list[Instance], list[Dropped]]:
    """Return the records that are kept, and the images that are left out, each with the one kept.

    Several records of one image are no duplicates of each other. With `join` the kept image gets the objects that
    only its copies have.
    """
    pairs, targets = duplicates_in(names, looks, instances)
    wanted = pairs[pairs.is_equal | (pairs.is_same & (which == "near"))]
    kept_as: dict[int, Pair] = {}
    for at in np.lexsort((wanted.seconds, wanted.firsts)).tolist():
        first, second = wanted.pairs_P2[at].tolist()
        if first not in kept_as and second not in kept_as:  # a copy of a copy may be none of the image that is kept
            kept_as[second] = wanted[at]
    pairs_P2 = np.array([(at, pair.first) for at, pair in sorted(kept_as.items())], np.int64).reshape(-1, 2)
    dropped = [
        Dropped(names[at], names[first], kept_as[at].how, same_boxes)
        for (at, first), same_boxes in zip(
            pairs_P2.tolist(), targets.are_the_same(names, pairs_P2).tolist(), strict=True
        )
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
    """Return the records of `count` images that are drawn, all records of an image together."""
    names = list(dict.fromkeys(instance.image for instance in instances))
    if not 0 < count <= len(names):
        raise InputError(f"--count: expected 1 to {len(names)}, the number of usable images, found {count}")
    chosen = set(random.Random(seed).sample(names, count))
    return [instance for instance in instances if instance.image in chosen]


def split_by_content(
    instances: Sequence[Instance], names: Sequence[str], looks: Looks, share: float
) -> tuple[dict[str, list[Instance]], list[dict[str, object]]]:
    """Return the instances of both splits, and the images of val that look like one in train.

    The split of an image depends on its content: copies, at any size and quality, stay together, and the share of
    groups of copies is that of single images, however large they are. Images without a record do not count.
    """
    left = {instance.image for instance in instances}
    places = [i for i, name in enumerate(names) if name in left]
    names, looks = [names[i] for i in places], looks.take(np.array(places, np.int64))
    place = {name: i for i, name in enumerate(names)}
    pairs = near_duplicates(looks.hashes, looks.hashes, within=True)
    first, second = pairs[are_copies(looks, looks, pairs[:, :2]), :2].T
    # One part of its digest makes an image the representative of its copies, another decides: the least of several
    # numbers is small, but not what stands beside it.
    begin_I, order_I = (looks.digests[:, at].copy().view(">u8").astype(np.uint64) for at in (0, 1))
    rank_I = np.empty(len(names), np.int64)
    rank_I[by_rank := np.lexsort((begin_I, order_I))] = np.arange(len(names))
    before_I = np.zeros_like(rank_I) - 1
    while not np.array_equal(rank_I, before_I):  # the least rank of each group of copies spreads over it
        before_I = rank_I.copy()
        np.minimum.at(rank_I, first, rank_I[second])
        np.minimum.at(rank_I, second, rank_I[first])
    begin_I = begin_I[by_rank[rank_I]]
    is_val_I = [begin < share * 2**64 for begin in begin_I.tolist()]
    in_val = [is_val_I[place[instance.image]] for instance in instances]
    splits: dict[str, list[Instance]] = {"train.jsonl": [], "val.jsonl": []}
    for instance, is_val in zip(instances, in_val, strict=True):
        splits["val.jsonl" if is_val else "train.jsonl"].append(instance)
    for name, part in splits.items():
        if not part:
            raise InputError(f"--split {share:g}: no image was assigned to {name}; choose another share, or add images")
    near: dict[int, dict[str, object]] = {}
    for i, j, bits in pairs.tolist():
        if is_val_I[i] != is_val_I[j]:
            val, train = (i, j) if is_val_I[i] else (j, i)
            near.setdefault(val, {"val": names[val], "train": names[train], "bits": bits})
    return splits, [row for _, row in sorted(near.items())]
