"""Combines the encoded samples of all sources of a run into one torch Dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from coord_trainer.data.conversations import Conversations
from coord_trainer.data.mixture import Mixture
from coord_trainer.data.samples import NO_OBJECTS, SampleSet
from coord_trainer.data.workers import leave_signals_to_the_parent


class ConversationSamples(Dataset):
    """Encoded conversations with the keys of samples of annotated images; their layout has no objects.

    Args:
        conversations: the conversations
        encode: swift's template
    """

    dropped_objects = 0
    kept = False

    def __init__(self, conversations: Conversations, encode: Callable[..., dict[str, Any]]) -> None:
        self.conversations, self._encoder = conversations, encode

    def __len__(self) -> int:
        return len(self.conversations)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.sample(index, 0)

    def sample(self, index: int, epoch: int) -> dict[str, Any]:
        """Return a sample, which is the same in all epochs."""
        sample = self._encoder(self.conversations.raw(index), return_length=True)
        name = f"{self.conversations.name}[{index}]"
        return {**sample, "coord_layout": NO_OBJECTS, "coord_boxes": [], "coord_sample": name}


class MixedSamples(Dataset):
    """The samples of an epoch from all sources of a mixture; `coord_source` is the index of a sample's source.

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
        part, record, passes = self.mixture.plan.locate(range(len(self))[index], self._epoch)
        return {**self.parts[part].sample(record, passes), "coord_source": part}

    def set_epoch(self, epoch: int) -> None:
        """Return samples of this epoch from now on."""
        self._epoch = epoch

    @property
    def dropped_objects(self) -> int:
        """Number of objects beyond `data.max_objects` of each source."""
        return sum(part.dropped_objects for part in self.parts)

    @property
    def kept(self) -> bool:
        """Whether all samples are encoded and kept in memory."""
        return all(part.kept for part in self.parts)
