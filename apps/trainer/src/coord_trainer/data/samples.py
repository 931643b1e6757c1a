"""Samples: images with their target texts, and conversations, encoded by swift's template.

swift's own preprocessing compares box corners as strings and would swap `<|coord_9|>` with `<|coord_10|>`;
its lazy data set replaces a failing sample with a random one. This torch Dataset does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from tqdm import tqdm

from coord_codec import Instance, SequenceLayout, find_layout
from coord_data.looking.processes import in_processes
from coord_data.reading.image_set import ImageSet
from coord_data.records import Records
from coord_detect.console import world_size
from coord_trainer.data.augment import augment
from coord_trainer.data.conversations import Conversations
from coord_trainer.data.levels import Coded, LevelCoder
from coord_trainer.data.mixture import Mixture
from coord_trainer.data.targets import TargetWriter
from coord_trainer.data.workers import leave_signals_to_the_parent

NO_OBJECTS = SequenceLayout((), (), (), (), ())
"""The layout of a sample without objects."""

PRELOAD_BYTES = 2 << 30
"""Encoded images are kept in memory if their float32 needs less than this: 1.3 GB for 6,000 images of 96 x 96 pixels.
A quarter of it is kept (`levels`)."""

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


class Samples(Dataset[dict[str, Any]]):
    """The encoded samples of a mixture: token ids, labels and pixels, with `coord_*` keys for the collator.

    `coord_layout` and `coord_boxes` are those of the target; a conversation has no objects. `coord_source` is the index
    of a sample's source, `coord_sample` its name in messages.

    Args:
        mixture: the sources, and the plan of an epoch
        encode: swift's template
        writers: writes the targets of each source; None for conversations
        marker_ids: ids of the object markers; None if answers have none
        augments: whether images are augmented as each source configures it
    """

    def __init__(
        self,
        mixture: Mixture,
        encode: Callable[..., dict[str, Any]],
        writers: Sequence[TargetWriter | None],
        marker_ids: tuple[int, ...] | None,
        augments: bool = False,
    ) -> None:
        self.mixture = mixture
        self._encoder = encode
        self._writers = tuple(writers)
        self._marker_ids = marker_ids
        self._augments = augments
        self._epoch = 0
        self._kept: list[list[dict[str, Any]] | None] = [None] * len(mixture.sources)
        for number, source in enumerate(mixture.sources):
            if self.keeps(len(source.content), number):
                self._kept[number] = self._encode_all(number)

    def __len__(self) -> int:
        return len(self.mixture)

    def __getitem__(self, index: int) -> dict[str, Any]:
        leave_signals_to_the_parent()
        number, record, passes = self.mixture.plan.locate(range(len(self))[index], self._epoch)
        return {**self.sample(record, passes, number), "coord_source": number}

    def set_epoch(self, epoch: int) -> None:
        """Return samples of this epoch from now on."""
        self._epoch = epoch

    def of_first_epoch(self) -> Samples:
        """Return the samples of the first epoch, whatever epoch is set here; encoded samples are shared."""
        first = copy(self)
        first.set_epoch(0)
        return first

    def sample(self, record: int, epoch: int, number: int = 0) -> dict[str, Any]:
        """Return the sample of a record of source `number` with the order, query and augmentation of an epoch."""
        kept = self._kept[number]
        return _decoded(kept[record]) if kept is not None else self._make(record, epoch, number)

    @property
    def kept(self) -> bool:
        """Whether all samples are encoded and kept in memory."""
        return None not in self._kept

    @property
    def dropped_objects(self) -> int:
        """Number of objects beyond `data.max_objects` of each source."""
        return sum(
            int((source.images.target_counts - source.data.max_objects).clip(min=0).sum())
            for source in self.mixture.sources
            if source.images is not None
        )

    def keeps(self, images: int, number: int = 0) -> bool:
        """Return whether this number of images like those of source `number` is encoded once and kept in memory."""
        source = self.mixture.sources[number]
        if source.images is None or source.data.varies:
            return False
        return self._pixel_bytes(number) * images < PRELOAD_BYTES * len(source.images)

    def drawn(self, record: int, epoch: int = 0, number: int = 0) -> tuple[Image.Image, str, Instance]:
        """Return the image of a record, its prompt, and the record with only the objects that answer it."""
        source, (images, writer) = self.mixture.sources[number], self._annotated(number)
        instance, image = images.instances[record], images.image(record)
        if self._augments and source.data.augment.active:
            image, instance = augment(image, instance, source.data.augment, writer.seed_of(instance, epoch))
        return image, *writer.ask(instance, epoch)

    def _annotated(self, number: int) -> tuple[ImageSet, TargetWriter]:
        """Return the images of an annotated source, and what writes their targets."""
        images, writer = self.mixture.sources[number].images, self._writers[number]
        assert images is not None and writer is not None
        return images, writer

    def _encode_all(self, number: int) -> list[dict[str, Any]]:
        """Encode all samples of a source in the first epoch with one process per available core."""
        images, _ = self._annotated(number)
        indices = range(len(images))
        size = max(1, _PIECE_BYTES * len(indices) // max(1, self._pixel_bytes(number)))
        pieces = [indices[start : start + size] for start in indices[::size]]
        kept = []
        with tqdm(total=len(images), desc=f"encoding {images.name}", unit="img", mininterval=0.5) as bar:
            for piece, samples in in_processes(partial(self._encode_piece, number), pieces, beside=world_size()):
                kept += [{name: _tensor(value) for name, value in sample.items()} for sample in samples]
                bar.update(len(piece))
        return kept

    def _encode_piece(self, number: int, piece: range) -> list[dict[str, Any]]:
        """Return samples with arrays in place of tensors, since each tensor needs an open file to be sent."""
        coder = LevelCoder()
        with _single_thread():
            return [
                {name: _array(value, coder) for name, value in self._make(record, 0, number).items()}
                for record in piece
            ]

    def _pixel_bytes(self, number: int) -> int:
        source, (images, _) = self.mixture.sources[number], self._annotated(number)
        pixels_N = Records.of(images.instances).image_sizes.astype(np.int64).prod(axis=1)
        return int(pixels_N.clip(max=source.data.max_pixels).sum()) * _BYTES_PER_PIXEL

    def _make(self, record: int, epoch: int = 0, number: int = 0) -> dict[str, Any]:
        source = self.mixture.sources[number]
        layout: Any
        boxes: Any
        if isinstance(source.content, Conversations):
            sample = self._encoder(source.content.raw(record), return_length=True)
            layout, boxes, name = NO_OBJECTS, [], f"{source.content.name}[{record}]"
        else:
            sample, layout, boxes, name = self._make_target(record, epoch, number)
        coord_fields = {"coord_layout": layout, "coord_boxes": boxes, "coord_sample": name}
        return {**sample, **coord_fields, "coord_geometry": source.data.geometry}

    def _make_target(self, record: int, epoch: int, number: int) -> tuple[dict[str, Any], Any, Any, str]:
        """Return an encoded image with its target, the layout and true boxes of the target, and the image's name."""
        data, (_, writer) = self.mixture.sources[number].data, self._annotated(number)
        image, prompt, instance = self.drawn(record, epoch, number)
        question = {"role": "user", "content": f"<image>{prompt}"}
        answer = {"role": "assistant", "content": writer.text(instance, epoch)}
        sample = self._encoder({"messages": [question, answer], "images": [image]}, return_length=True)
        layout, boxes = None, None
        if writer.vocab is not None:
            # Box layouts keep objects with other numbers of coordinates, which `ObjectSlots` counts.
            geometry = None if data.shape.is_box else data.shape
            layout = find_layout(sample["labels"], writer.vocab, self._marker_ids, geometry)
            boxes = writer.true_coordinates(instance, epoch)
        return sample, layout, boxes, str(instance.image if instance.image_id is None else instance.image_id)


def _array(value: Any, coder: LevelCoder) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bfloat16:
        return value
    pixels = value.numpy()
    return coder.coded(pixels) or pixels if value.dtype == torch.float32 and value.numel() else pixels


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _decoded(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.decoded() if isinstance(value, Coded) else value for name, value in sample.items()}


class WholeRounds(Dataset[dict[str, Any]]):
    """A data set padded to a multiple of `ranks` with samples without supervised tokens.

    Ranks synchronise after each evaluation batch, so all need equally many; a repeated sample would count twice.
    """

    def __init__(self, samples: Samples, ranks: int) -> None:
        self._samples = samples
        self._length = -(-len(samples) // ranks) * ranks

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index < len(self._samples):
            return self._samples[index]
        sample = self._samples[0]
        return sample | {"labels": [-100] * len(sample["labels"]), "coord_layout": NO_OBJECTS, "coord_boxes": None}
