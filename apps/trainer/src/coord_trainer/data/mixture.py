"""Several sources in one run: which record of which source each sample of an epoch is.

An epoch has as many samples as the sources have records together. A source's share of them is its weight by the sum of
all weights; it goes through its records in one shuffled order after the other, so that no record is seen twice before
all were seen once, across epochs too. Everything follows from the number of a sample, the epoch and the seed: ranks,
workers and a resumed run agree without telling each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from coord_codec import InputError
from coord_trainer.config.sections import DataSection
from coord_trainer.data.conversations import Conversations
from coord_trainer.data.image_set import ImageSet


@dataclass(frozen=True)
class Part:
    """One source of a run.

    Attributes:
        name: what reports call it
        content: annotated images, or conversations
        data: prompt, queries, augmentation and whatever else is said for this source
        weight: None where no source has one
    """

    name: str
    content: ImageSet | Conversations
    data: DataSection
    weight: float | None = None


@dataclass(frozen=True)
class Plan:
    """Where the samples of an epoch come from.

    Attributes:
        sizes: records of each source
        counts: samples of each source in an epoch
        seed: of the orders

    Example:
        >>> plan = Plan.of([2, 6], [3, 1])
        >>> plan.counts
        (6, 2)
        >>> [plan.locate(index, 0)[0] for index in range(len(plan))]
        [0, 0, 0, 0, 0, 0, 1, 1]
    """

    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    seed: int = 0

    @staticmethod
    def of(sizes: Sequence[int], weights: Sequence[float] | None = None, seed: int = 0) -> Plan:
        """Return the plan of sources of these sizes; without weights each record is seen once an epoch.

        Raises:
            InputError: a source's share is less than one sample.
        """
        total = sum(sizes)
        shares = np.array(sizes if weights is None else weights, dtype=np.float64)
        exact = shares / shares.sum() * total
        counts = np.floor(exact + 1e-9).astype(np.int64)
        for number in np.argsort(counts - exact, kind="stable")[: total - counts.sum()]:  # the largest remainders
            counts[number] += 1
        if (counts == 0).any():
            number = int(np.argmin(counts))
            raise InputError(
                f"data.sources.{number}.weight: its share is less than one of the {total} samples of an epoch; raise it"
            )
        return Plan(tuple(sizes), tuple(counts.tolist()), seed)

    def __len__(self) -> int:
        return sum(self.counts)

    @property
    def varies(self) -> bool:
        """Whether the epochs differ in the records that they see."""
        return self.sizes != self.counts

    def locate(self, index: int, epoch: int) -> tuple[int, int, int]:
        """Return source, record, and how many times all records of the source were seen before, of a sample."""
        for part, (size, count) in enumerate(zip(self.sizes, self.counts, strict=True)):
            if index < count:
                if size == count:
                    return part, index, epoch
                seen, place = divmod(epoch * count + index, size)
                return part, int(_order(size, self.seed, part, seen)[place]), seen
            index -= count
        raise IndexError(index)


@lru_cache(maxsize=8)
def _order(size: int, seed: int, part: int, seen: int) -> np.ndarray:
    return np.random.default_rng([seed, part, seen]).permutation(size)


@dataclass(frozen=True)
class Mixture:
    """What a run trains on: one source or several.

    Attributes:
        parts: the sources
        plan: which of their records an epoch has
    """

    parts: tuple[Part, ...]
    plan: Plan = field(repr=False)

    @staticmethod
    def of(parts: Sequence[Part], seed: int) -> Mixture:
        """Return the mixture of some sources; `seed` is that of the orders in which they are seen."""
        weights = [part.weight for part in parts if part.weight is not None]
        return Mixture(tuple(parts), Plan.of([len(part.content) for part in parts], weights or None, seed))

    @staticmethod
    def of_one(images: ImageSet | Mixture, data: DataSection) -> Mixture:
        """Return a set of images as a mixture of one source; a mixture as it is."""
        return images if isinstance(images, Mixture) else Mixture.of([Part(images.name, images, data)], 0)

    def __len__(self) -> int:
        return len(self.plan)

    @property
    def image_sets(self) -> list[ImageSet]:
        """The annotated sources."""
        return [part.content for part in self.parts if isinstance(part.content, ImageSet)]

    @property
    def only(self) -> ImageSet | None:
        """The images of a run with one annotated source; None otherwise."""
        found = self.image_sets
        return found[0] if len(found) == len(self.parts) == 1 else None

    @property
    def varies(self) -> bool:
        """Whether a sample is another one in each epoch."""
        return self.plan.varies or any(p.data.varies for p in self.parts if isinstance(p.content, ImageSet))

    @property
    def digest(self) -> str:
        """Of all sources: of the one where there is no other."""
        digests = [part.content.digest for part in self.parts]
        return digests[0] if len(digests) == 1 else hashlib.sha256(repr(digests).encode()).hexdigest()[:16]

    def facts(self) -> list[dict[str, object]]:
        """Return what the manifest keeps of each source."""
        return [
            {
                "name": part.name,
                "kind": "images" if isinstance(part.content, ImageSet) else "conversations",
                "records": len(part.content),
                "weight": part.weight,
                "share": count / len(self),
                "digest": part.content.digest,
                "problems": len(part.content.problems),
            }
            for part, count in zip(self.parts, self.plan.counts, strict=True)
        ]
