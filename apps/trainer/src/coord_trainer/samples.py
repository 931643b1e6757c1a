"""Our own torch Dataset: a picture and its objects, encoded by swift's template, with the true boxes beside.

swift's own preprocessing compares box corners as strings and would swap `<|coord_9|>` with `<|coord_10|>`;
its lazy data set replaces a failing sample by a random one. Neither happens here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset
from tqdm import tqdm

from coord_codec import (
    MARKERS,
    CoordVocab,
    Instance,
    Object,
    SequenceLayout,
    encode_target,
    find_layout,
    select_objects,
)

from .config_sections import DataSection
from .errors import RunError
from .picture_set import PictureSet

# Encoded pictures are kept when they need less than this: 6,000 of 96 x 96 need 1.3 GB.
PRELOAD_BYTES = 2 << 30
_BYTES_PER_PIXEL = 3 * 2 * 4  # three channels, two identical frames, float32


@dataclass(frozen=True)
class TargetWriter:
    """How an instance becomes the text that the model learns to say."""

    data: DataSection
    coord_tokens: bool
    seed: int
    vocab: CoordVocab | None

    def objects(self, instance: Instance, epoch: int = 0) -> tuple[list[Object], int]:
        """The objects in training order, and how many the cap left out."""
        seed = self._seed(instance, epoch)
        kept, dropped = select_objects(instance, self.data.order, self.data.max_objects, seed)
        return list(kept), dropped

    def text(self, instance: Instance, epoch: int = 0) -> str:
        """The answer; under `order: random` each epoch has an order of its own."""
        return encode_target(
            instance,
            markers=self.data.markers,
            style=self.data.style,
            form="tokens" if self.coord_tokens else "numbers",
            order=self.data.order,
            max_objects=self.data.max_objects,
            seed=self._seed(instance, epoch),
        )

    def _seed(self, instance: Instance, epoch: int) -> int:
        return zlib.crc32(f"{self.seed} {epoch} {instance.image_id} {instance.image}".encode())


@contextmanager
def _one_thread() -> Iterator[None]:
    """A picture is too small for several threads: beside a busy process they wait for each other (5 x slower)."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SampleSet(Dataset):
    """Encoded samples: ids, labels, pixels, plus `coord_layout` and `coord_boxes` for the collator."""

    def __init__(
        self,
        pictures: PictureSet,
        encode: Callable[..., dict[str, Any]],
        writer: TargetWriter,
        marker_ids: tuple[int, ...] | None,
    ) -> None:
        self.pictures, self._encode, self._writer, self._marker_ids = pictures, encode, writer, marker_ids
        self.dropped_objects = sum(writer.objects(i)[1] for i in pictures.instances)
        self._kept: list[dict[str, Any]] | None = None
        self._epoch = 0
        if self.keeps(len(pictures)):
            steps = tqdm(range(len(pictures)), desc=f"encoding {pictures.name}", unit="img", mininterval=0.5)
            with _one_thread():
                self._kept = [self._make(index) for index in steps]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(self._kept[index]) if self._kept is not None else self._make(index)

    def set_epoch(self, epoch: int) -> None:
        """Under `order: random`, write the objects in the order of that epoch from now on."""
        self._epoch = epoch

    @property
    def kept(self) -> bool:
        """Whether all samples are encoded already."""
        return self._kept is not None

    def keeps(self, pictures: int) -> bool:
        """Whether so many pictures like these are encoded once and kept."""
        # What an epoch writes anew cannot be kept encoded.
        wanted = self._writer.data.preload if self._writer.data.order != "random" else False
        return wanted if wanted is not None else self._bytes() * pictures < PRELOAD_BYTES * len(self)

    def _bytes(self) -> int:
        cap = self._writer.data.max_pixels or float("inf")
        sizes = ((i.width or 0) * (i.height or 0) for i in self.pictures.instances)
        return sum(int(min(size, cap)) * _BYTES_PER_PIXEL for size in sizes)

    def _make(self, index: int) -> dict[str, Any]:
        instance = self.pictures.instances[index]
        try:
            picture = self.pictures.picture(index)
        except OSError as error:
            raise RunError(
                f"{self.pictures.root / instance.image}: became unreadable during the run ({error})"
            ) from None
        sample = self._encode(
            {
                "messages": [
                    {"role": "user", "content": "<image>" + self._writer.data.prompt},
                    {"role": "assistant", "content": self._writer.text(instance, self._epoch)},
                ],
                "images": [picture],
            },
            return_length=True,
        )
        layout, boxes = None, None
        if self._writer.vocab is not None:
            layout = find_layout(sample["labels"], self._writer.vocab, self._marker_ids)
            boxes = [tuple(found.bbox) for found in self._writer.objects(instance, self._epoch)[0]]
        return {**sample, "coord_layout": layout, "coord_boxes": boxes}


class WholeRounds(Dataset):
    """A data set filled up to a multiple of `ranks` with samples that count for nothing.

    Evaluation waits for all ranks after each batch, so each needs as many; a repeated sample would count twice.
    """

    def __init__(self, samples: Dataset, ranks: int) -> None:
        self._samples, self._length = samples, -(-len(samples) // ranks) * ranks

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index < len(self._samples):
            return self._samples[index]
        sample = self._samples[0]
        nothing = SequenceLayout((), (), (), (), ())
        return sample | {
            "labels": [-100] * len(sample["labels"]),
            "coord_layout": nothing,
            "coord_boxes": None,
        }


def marker_ids(data: DataSection, tokenizer) -> tuple[int, ...] | None:
    """What `find_layout` takes for the configured style."""
    return MARKERS[data.markers].ids(tokenizer) if data.style == "markers" else None
