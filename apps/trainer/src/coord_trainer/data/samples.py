"""Samples: an image and its target text, encoded by swift's template.

swift's own preprocessing compares box corners as strings and would swap `<|coord_9|>` with `<|coord_10|>`;
its lazy data set replaces a failing sample with a random one. This torch Dataset does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from tqdm import tqdm

from coord_codec import Instance, SequenceLayout, find_layout
from coord_data.image_set import ImageSet
from coord_data.processes import in_processes
from coord_trainer.console import world_size
from coord_trainer.data.augment import augment
from coord_trainer.data.noise import without_noise
from coord_trainer.data.targets import TargetWriter
from coord_trainer.data.workers import leave_signals_to_the_parent

NO_OBJECTS = SequenceLayout((), (), (), (), ())
"""The layout of a sample without objects."""

PRELOAD_BYTES = 2 << 30
"""Encoded images are kept in memory if they need less than this; 6,000 images of 96 x 96 pixels need 1.3 GB."""

_PIECE_BYTES = 16 << 20
"""Bytes that a process encodes before sending them: 75 images of 96 x 96 pixels, or one photograph."""

_BYTES_PER_PIXEL = 3 * 2 * 4  # three channels, two identical frames, float32


@contextmanager
def _single_thread() -> Iterator[None]:
    """Use one thread: images are too small for several, which were 5 x slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SampleSet(Dataset):
    """Encoded samples: token ids, labels and pixels, with `coord_layout` and `coord_boxes` for the collator."""

    def __init__(
        self,
        images: ImageSet,
        encode: Callable[..., dict[str, Any]],
        writer: TargetWriter,
        marker_ids: tuple[int, ...] | None,
        augments: bool = False,
    ) -> None:
        self._augments = augments and writer.data.augment.active
        self.images, self._encoder, self._writer, self._marker_ids = images, encode, writer, marker_ids
        self.dropped_objects = int((images.target_counts - writer.data.max_objects).clip(min=0).sum())
        self._kept: list[dict[str, Any]] | None = None
        if self.keeps(len(images)):
            self._kept = self._encode_all()

    def _encode_all(self) -> list[dict[str, Any]]:
        """Encode all samples of the first epoch with one process per available core."""
        indices = range(len(self.images))
        size = max(1, _PIECE_BYTES * len(indices) // max(1, self._pixel_bytes()))
        pieces = [indices[start : start + size] for start in indices[::size]]
        kept = []
        with tqdm(total=len(self.images), desc=f"encoding {self.images.name}", unit="img", mininterval=0.5) as bar:
            for piece, samples in in_processes(self._encode_piece, pieces, beside=world_size()):
                kept += [{name: _tensor(value) for name, value in sample.items()} for sample in samples]
                bar.update(len(piece))
        return kept

    def _encode_piece(self, piece: range) -> list[dict[str, Any]]:
        """Return samples with arrays in place of tensors, since each tensor needs an open file to be sent."""
        with _single_thread():
            return [{name: _array(value) for name, value in self._make(index).items()} for index in piece]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        leave_signals_to_the_parent()
        return self.sample(index, 0)

    def sample(self, index: int, epoch: int) -> dict[str, Any]:
        """Return the sample of an image with the order, query and augmentation of an epoch."""
        return dict(self._kept[index]) if self._kept is not None else self._make(index, epoch)

    @property
    def kept(self) -> bool:
        """Whether all samples are encoded and kept in memory."""
        return self._kept is not None

    def keeps(self, images: int) -> bool:
        """Return whether this number of such images is encoded once and kept in memory."""
        preload = False if self._writer.data.varies else self._writer.data.preload
        return preload if preload is not None else self._pixel_bytes() * images < PRELOAD_BYTES * len(self)

    def _pixel_bytes(self) -> int:
        pixels_N = self.images.image_sizes.astype(np.int64).prod(axis=1)
        return int(pixels_N.clip(max=self._writer.data.max_pixels).sum()) * _BYTES_PER_PIXEL

    def drawn(self, index: int, epoch: int = 0) -> tuple[Image.Image, str, Instance]:
        """Return the image of a sample, its prompt, and the record with only the objects that answer it."""
        instance = self.images.instances[index]
        image = self.images.image(index)
        if self._augments:
            image, instance = augment(image, instance, self._writer.data.augment, self._writer.seed_of(instance, epoch))
        return image, *self._writer.ask(instance, epoch)

    def _make(self, index: int, epoch: int = 0) -> dict[str, Any]:
        image, prompt, instance = self.drawn(index, epoch)
        sample = self._encoder(
            {
                "messages": [
                    {"role": "user", "content": "<image>" + prompt},
                    {"role": "assistant", "content": self._writer.text(instance, epoch)},
                ],
                "images": [image],
            },
            return_length=True,
        )
        layout, boxes = None, None
        if self._writer.vocab is not None:
            geometry = self._writer.data.geometry
            # Box layouts keep objects with other numbers of coordinates, which `ObjectSlots` counts.
            layout_geometry = None if geometry == "box" else geometry
            layout = find_layout(sample["labels"], self._writer.vocab, self._marker_ids, layout_geometry)
            boxes = self._writer.true_coordinates(instance, epoch)
            if self._writer.data.noise_objects:
                sample["labels"], layout = without_noise(sample["labels"], layout, len(boxes))
        name = str(instance.image if instance.image_id is None else instance.image_id)
        coord_fields = {"coord_layout": layout, "coord_boxes": boxes, "coord_sample": name}
        return {**sample, **coord_fields, "coord_geometry": self._writer.data.geometry}


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) and value.dtype != torch.bfloat16 else value


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


class WholeRounds(Dataset):
    """A data set padded to a multiple of `ranks` with samples without supervised tokens.

    Ranks synchronise after each evaluation batch, so all need equally many; a repeated sample would count twice.
    """

    def __init__(self, samples: Dataset, ranks: int) -> None:
        self._samples, self._length = samples, -(-len(samples) // ranks) * ranks

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index < len(self._samples):
            return self._samples[index]
        sample = self._samples[0]
        return sample | {"labels": [-100] * len(sample["labels"]), "coord_layout": NO_OBJECTS, "coord_boxes": None}
