"""Encoded samples of all sources of a run, as one torch data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from coord_codec import SequenceLayout
from coord_trainer.data.conversations import Conversations
from coord_trainer.data.mixture import Mixture
from coord_trainer.data.parallel.workers import leave_signals_to_the_parent
from coord_trainer.data.samples import SampleSet

_NOTHING = SequenceLayout((), (), (), (), ())


class ConversationSamples(Dataset):
    """Encoded conversations, shaped as the samples of annotated images are; their layout has no object.

    Args:
        found: the conversations
        encode: swift's template
    """

    dropped_objects = 0
    kept = False

    def __init__(self, found: Conversations, encode: Callable[..., dict[str, Any]]) -> None:
        self.found, self._encoder = found, encode

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.sample(index, 0)

    def sample(self, index: int, epoch: int) -> dict[str, Any]:
        """Return a sample; it is the same in all epochs."""
        sample = self._encoder(self.found.raw(index), return_length=True)
        return {**sample, "coord_layout": _NOTHING, "coord_boxes": [], "coord_sample": f"{self.found.name}[{index}]"}


class MixedSamples(Dataset):
    """The samples of an epoch, from all sources of a mixture; each says in `coord_source` which one it is of.

    Args:
        mixture: the sources, and the plan of an epoch
        parts: the samples of each source
    """

    def __init__(self, mixture: Mixture, parts: Sequence[SampleSet | ConversationSamples]) -> None:
        self.mixture, self.parts = mixture, tuple(parts)
        self.varies = mixture.varies
        self._epoch = 0

    def __len__(self) -> int:
        return len(self.mixture)

    def __getitem__(self, index: int) -> dict[str, Any]:
        leave_signals_to_the_parent()
        part, record, seen = self.mixture.plan.locate(range(len(self))[index], self._epoch)
        return {**self.parts[part].sample(record, seen), "coord_source": part}

    def set_epoch(self, epoch: int) -> None:
        """Give the samples of that epoch from now on."""
        self._epoch = epoch

    @property
    def dropped_objects(self) -> int:
        """Objects beyond the cap of each source."""
        return sum(part.dropped_objects for part in self.parts)

    @property
    def kept(self) -> bool:
        """Whether all samples are encoded and in memory."""
        return all(part.kept for part in self.parts)
