"""Collates samples into padded batches with the objects whose coordinates they contain."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from coord_codec import CoordVocab, Geometry, SequenceLayout, find_layout
from coord_codec.vocab import MarkerFamily, marker_family
from coord_losses.slots import ObjectSlots

Sample = dict[str, Any]


def collate_with_objects(
    features: Sequence[Mapping[str, Any]],
    join: Callable[[list[Sample]], tuple[dict[str, Any], dict[str, Any]]],
    vocab: CoordVocab | None,
    find: Callable[[Sample, str | Geometry], SequenceLayout] | None = None,
) -> dict[str, Any]:
    """Collate samples in any way, and add the rows and ground-truth boxes of their objects as `objects`.

    Of each sample, `boxes`, `geometry` (by default boxes; one for all samples) and `layout` describe its objects and
    are not passed on.

    Args:
        features: the samples, which are not changed
        join: returns the batch of the samples' other keys, and where each sample stands in it (`batch_rows` and
            `starts` of `ObjectSlots.from_layouts`)
        vocab: the coordinate tokens; None if coordinates are written as text, so that no object has rows
        find: finds the layout of a sample's `input_ids` in a geometry; None if each sample has a `layout`

    Raises:
        ValueError: if the samples have several geometries, or the boxes do not fit the layouts

    Example:
        >>> from coord_codec import CoordGrid
        >>> vocab = CoordVocab(first_id=10, grid=CoordGrid(bins=10, scale=10))
        >>> ids = [7, 1, 5, 11, 12, 15, 16, 2]
        >>> sample = {"labels": ids, "layout": find_layout(ids, vocab, (1, 2)), "boxes": [[0.11, 0.19, 0.5, 0.6]]}
        >>> batch = collate_with_objects([sample], lambda samples: ({"labels": torch.tensor([ids])}, {}), vocab)
        >>> batch["objects"].rows_M4
        tensor([[2, 3, 4, 5]])
    """
    samples = [dict(feature) for feature in features]
    boxes = [sample.pop("boxes", None) for sample in samples]
    geometries = list(dict.fromkeys(sample.pop("geometry", "box") for sample in samples))
    if len(geometries) > 1:
        raise ValueError(f"the samples of a batch have one geometry, found {', '.join(map(str, geometries))}")
    layouts = [sample.pop("layout") if find is None else find(sample, geometries[0]) for sample in samples]
    batch, places = join(samples)
    if vocab is None:
        batch["objects"] = ObjectSlots.none()
        return batch
    batch["objects"] = ObjectSlots.from_layouts(
        layouts,
        batch["labels"],
        boxes,
        vocab,
        ids_BT=None if find is None else batch["input_ids"],
        geometry=geometries[0],
        **places,
    )
    return batch


class CoordCollator:
    """Pad samples to a batch and find the rows and ground-truth boxes of their objects.

    A sample has `input_ids` and `labels` of equal length, and optionally `boxes` (its objects' ground-truth boxes in
    [0, 1] in the order of the text; by default the dequantised labels) and `geometry` (one for all samples, see
    `coord_codec.geometry`; by default boxes).
    Objects are found in `input_ids`; those whose labels are masked are not trained on, and keep their place in `boxes`
    (which may also leave out objects of the prompt).
    Other sequences of that length are padded with 0; other tensors (`pixel_values`, `image_grid_thw`) are concatenated
    along their first dimension and may be missing in some samples, such as those without an image.

    Args:
        tokenizer: provides the padding id, the ids of the markers and, if `vocab` is None, the coordinate tokens; may
            also be a processor that holds one as `.tokenizer`
        markers: a family or its name, or the marker ids; None for JSON text
        vocab: the coordinate tokens
        padding_side: "right" or "left"

    Raises:
        ValueError: if the tokenizer lacks a token, or the padding side is unknown

    Example:
        >>> from types import SimpleNamespace
        >>> from coord_codec import CoordGrid, CoordVocab
        >>> vocab = CoordVocab(first_id=10, grid=CoordGrid(bins=10, scale=10))
        >>> collate = CoordCollator(SimpleNamespace(pad_token_id=0), markers=(1, 2), vocab=vocab)
        >>> sample = {"input_ids": [7, 1, 5, 11, 12, 15, 16, 2], "labels": [-100, 1, 5, 11, 12, 15, 16, 2]}
        >>> batch = collate([sample | {"boxes": [[0.11, 0.19, 0.5, 0.6]]}, {"input_ids": [7, 8], "labels": [-100, 8]}])
        >>> batch["input_ids"].shape, batch["objects"].rows_M4
        (torch.Size([2, 8]), tensor([[2, 3, 4, 5]]))
    """

    def __init__(
        self,
        tokenizer: Any,
        markers: str | MarkerFamily | Sequence[int] | None = "qwen",
        vocab: CoordVocab | None = None,
        *,
        padding_side: str = "right",
    ) -> None:
        if padding_side not in ("right", "left"):
            raise ValueError(f"padding_side must be 'right' or 'left', got {padding_side!r}")
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self.vocab = CoordVocab.from_tokenizer(tokenizer) if vocab is None else vocab
        self.markers: Sequence[int] | None
        if isinstance(markers, (str, MarkerFamily)):
            self.markers = marker_family(markers).ids(tokenizer)
        else:
            self.markers = markers
        self.pad_id = 0 if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self.padding_side = padding_side

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return `input_ids`, `attention_mask`, `labels`, `objects` (`ObjectSlots`) and the other keys of the samples.

        Raises:
            ValueError: if `input_ids` or `labels` are missing or differ in length, or a sample lacks a sequence or
                number that another one has
        """
        for i, sample in enumerate(features):
            if lacking := {"input_ids", "labels"} - sample.keys():
                raise ValueError(f"sample {i} has no {min(lacking)}, only {', '.join(sample) or 'nothing'}")
            length, labels = len(_to_list(sample["input_ids"])), len(_to_list(sample["labels"]))
            if labels != length:
                raise ValueError(f"sample {i}: {length} input_ids and {labels} labels; one label for each id")
        batch = collate_with_objects(features, self._pad, self.vocab, self._find)
        without_boxes = sum(features[image].get("boxes") is None for image in batch["objects"].image_M.tolist())
        if batch["objects"].fallbacks > without_boxes:
            warnings.warn(
                "some `boxes` do not agree with the coordinates in the text, and the dequantised labels are used "
                "instead: give fractions of the image's sides, one box for each object, in the order of the text",
                stacklevel=2,
            )
        return batch

    def _find(self, sample: Sample, geometry: str | Geometry) -> SequenceLayout:
        return find_layout(sample["input_ids"], self.vocab, self.markers, geometry)

    def _pad(self, samples: list[Sample]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the padded batch, and the column at which each sample begins."""
        lengths = [len(sample["input_ids"]) for sample in samples]
        samples = [{"attention_mask": [1] * n} | sample for n, sample in zip(lengths, samples, strict=True)]
        names = dict.fromkeys(name for sample in samples for name, value in sample.items() if value is not None)
        batch = {name: self._join(name, [sample.get(name) for sample in samples], lengths) for name in names}
        left = max(lengths) if self.padding_side == "left" else None
        return batch, {"starts": [0 if left is None else left - length for length in lengths]}

    def _join(self, name: str, values: Sequence[Any], lengths: Sequence[int]) -> Tensor:
        """Pad the sequences of a key, or concatenate or stack its tensors; the value of a sample without it is None."""
        tensors = [None if value is None else torch.as_tensor(value) for value in values]
        given = [x for x in tensors if x is not None]
        is_padded = all(
            x is None or (x.ndim == 1 and len(x) == length) for x, length in zip(tensors, lengths, strict=True)
        )
        if not is_padded and given[0].ndim:
            return torch.cat(given)
        if len(given) < len(tensors):
            lacking = next(i for i, x in enumerate(tensors) if x is None)
            raise ValueError(f"sample {lacking} has no {name}, which another sample of the batch has")
        if not is_padded:
            return torch.stack(given)
        longest, fill = max(lengths), {"input_ids": self.pad_id, "labels": -100}.get(name, 0)
        padded = given[0].new_full((len(given), longest), fill)
        for row, x, length in zip(padded, given, lengths, strict=True):
            (row[longest - length :] if self.padding_side == "left" else row[:length]).copy_(x)
        return padded


def _to_list(values: Any) -> list[int]:
    numbers: list[int] = values.tolist() if hasattr(values, "tolist") else list(values)
    return numbers
