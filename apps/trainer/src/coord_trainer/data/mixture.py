"""Mixes several sources in one run: determines the source and record of each sample of an epoch.

An epoch has as many samples as all sources have records. The share of a source is its weight divided by the sum of all
weights. A source makes pass after pass over its records, each in a new shuffled order, so that no record recurs before
all were seen, across epochs too. Everything is computed from sample index, epoch and seed, so that ranks, workers and a
resumed run agree without communication.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from coord_codec import InputError
from coord_data.reading.image_set import ImageSet
from coord_trainer.config.sections import DataSection
from coord_trainer.data.conversations import Conversations


@dataclass(frozen=True)
class MixtureSource:
    """One source of a run.

    Attributes:
        name: name of the source in reports
        content: annotated images, or conversations
        data: settings of this source, such as prompt, queries and augmentation
        weight: weight of the source; None if no source has one
    """

    name: str
    content: ImageSet | Conversations
    data: DataSection
    weight: float | None = None

    @property
    def images(self) -> ImageSet | None:
        """The annotated images; None for conversations."""
        return None if isinstance(self.content, Conversations) else self.content


@dataclass(frozen=True)
class Plan:
    """Assigns the samples of an epoch to sources and records.

    Attributes:
        sizes: number of records of each source
        counts: number of samples of each source in an epoch
        seed: seed of the shuffled orders

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
        """Return the plan for sources of these sizes; without weights each record is seen once per epoch.

        Raises:
            InputError: the share of a source is less than one sample.
        """
        total = sum(sizes)
        shares = np.array(sizes if weights is None else weights, dtype=np.float64)
        quotas = shares / shares.sum() * total
        counts = np.floor(quotas + 1e-9).astype(np.int64)
        for index in np.argsort(counts - quotas, kind="stable")[: total - counts.sum()]:  # largest remainder method
            counts[index] += 1
        if (counts == 0).any():
            index = int(np.argmin(counts))
            raise InputError(
                f"data.sources.{index}.weight: its share is less than one of the {total} samples of an epoch; raise it"
            )
        return Plan(tuple(sizes), tuple(counts.tolist()), seed)

    def __len__(self) -> int:
        return sum(self.counts)

    @property
    def varies(self) -> bool:
        """Whether epochs contain different records."""
        return self.sizes != self.counts

    def locate(self, index: int, epoch: int) -> tuple[int, int, int]:
        """Return source index, record index, and number of completed passes over the source, of a sample."""
        for part, (size, count) in enumerate(zip(self.sizes, self.counts, strict=True)):
            if index < count:
                if size == count:
                    return part, index, epoch
                passes, position = divmod(epoch * count + index, size)
                return part, int(_order(size, self.seed, part, passes)[position]), passes
            index -= count
        raise IndexError(index)


@lru_cache(maxsize=8)
def _order(size: int, seed: int, part: int, passes: int) -> np.ndarray:
    return np.random.default_rng([seed, part, passes]).permutation(size)


@dataclass(frozen=True)
class Mixture:
    """The training data of a run: one or several sources.

    Attributes:
        sources: the sources
        plan: assignment of samples to sources and records
    """

    sources: tuple[MixtureSource, ...]
    plan: Plan = field(repr=False)

    @staticmethod
    def of(sources: Sequence[MixtureSource], seed: int) -> Mixture:
        """Return the mixture of sources; `seed` is the seed of their shuffled orders."""
        weights = [source.weight for source in sources if source.weight is not None]
        sizes = [len(source.content) for source in sources]
        return Mixture(tuple(sources), Plan.of(sizes, weights or None, seed))

    @staticmethod
    def of_one(images: ImageSet | Mixture, data: DataSection) -> Mixture:
        """Return a mixture with an image set as its only source; a mixture is returned unchanged."""
        return images if isinstance(images, Mixture) else Mixture.of([MixtureSource(images.name, images, data)], 0)

    def __len__(self) -> int:
        return len(self.plan)

    @property
    def image_sets(self) -> list[ImageSet]:
        """The annotated sources."""
        return [source.images for source in self.sources if source.images is not None]

    @property
    def only(self) -> ImageSet | None:
        """The image set of a run whose only source is annotated; None otherwise."""
        return self.sources[0].images if len(self.sources) == 1 else None

    @property
    def varies(self) -> bool:
        """Whether samples differ between epochs."""
        return self.plan.varies or any(source.data.varies for source in self.sources if source.images is not None)

    @property
    def digest(self) -> str:
        """Digest of all sources; that of the source if there is only one."""
        digests = [source.content.digest for source in self.sources]
        return digests[0] if len(digests) == 1 else hashlib.sha256(repr(digests).encode()).hexdigest()[:16]

    def facts(self) -> list[dict[str, object]]:
        """Return the record of each source for the manifest."""
        return [
            {
                "name": source.name,
                "kind": "conversations" if source.images is None else "images",
                "records": len(source.content),
                "weight": source.weight,
                "share": count / len(self),
                "digest": source.content.digest,
                "problems": len(source.content.problems),
            }
            for source, count in zip(self.sources, self.plan.counts, strict=True)
        ]
