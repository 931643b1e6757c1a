"""Object slots: which rows of a batch decode which object, and what is true of it.

Shapes: N supervised rows, M objects, P coordinates of all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from coord_codec import CoordVocab, Geometry, SequenceLayout, geometry_of

Box = Sequence[float]


@dataclass(frozen=True)
class CoordRows:
    """The coordinates of objects that are no boxes, object by object, x and y in turn.

    Attributes:
        rows_P: int64, the row that predicts each
        true_P: the true coordinate in [0, 1], not the bin it was rounded to
        object_P: int64, the object that each belongs to, ascending

    Example:
        >>> import torch
        >>> CoordRows(torch.tensor([4, 5]), torch.tensor([0.25, 0.5]), torch.tensor([0, 0])).is_x_P
        tensor([ True, False])
    """

    rows_P: Tensor
    true_P: Tensor
    object_P: Tensor

    def __post_init__(self) -> None:
        if not self.rows_P.shape == self.true_P.shape == self.object_P.shape or self.rows_P.dim() != 1:
            raise ValueError(
                "rows_P, true_P and object_P must be [P] each, got "
                f"{tuple(self.rows_P.shape)}, {tuple(self.true_P.shape)}, {tuple(self.object_P.shape)}"
            )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "CoordRows":
        """Return the same on another device."""
        parts = (self.rows_P, self.true_P, self.object_P)
        return CoordRows(*(part.to(device, non_blocking=non_blocking) for part in parts))

    @property
    def is_x_P(self) -> Tensor:  # noqa: N802  (shape suffix)
        """Whether each is an x: an object has an even number of coordinates [P]."""
        return torch.arange(len(self.rows_P), device=self.rows_P.device) % 2 == 0


@dataclass(frozen=True)
class ObjectSlots:
    """The objects of a batch: which rows decode each, and its true box.

    Attributes:
        rows_M4: int64, rows of `supervised_rows` that predict x1, y1, x2, y2 of each object; of another geometry those
            of the vertices at these sides of its true box
        boxes_M4: the true continuous boxes in [0, 1], not the bins they were rounded to; of another geometry the boxes
            around the true shapes
        image_M: int64, the sample each object belongs to
        weights_M: factor of each object in the terms of its box and of its four coordinates; None for 1.
            Denominators stay counts
        fallbacks: objects whose box is the dequantised label, since no usable true box was given
        skipped: objects left out: cut off or malformed in the sequence (what the layout omits), more or fewer
            coordinates than the geometry has, or a coordinate that is not supervised
        coords: every coordinate of objects that are no boxes; None for boxes
        said_M: int64, the description in front of each object's coordinates, equal for equal descriptions; None where
            layouts cannot tell (JSON)
        label_M: int64, the same of the true object that `boxes_M4` holds

    Example:
        >>> import torch
        >>> from coord_codec import CoordGrid, CoordVocab, find_layout
        >>> vocab = CoordVocab(first_id=10, grid=CoordGrid(bins=10, scale=10))
        >>> labels = torch.tensor([[-100, 1, 5, 11, 12, 15, 16, 2]])  # start, description, four coordinates, end
        >>> layout = find_layout(labels[0].tolist(), vocab, markers=(1, 2))
        >>> slots = ObjectSlots.from_layouts([layout], labels, [[[0.11, 0.19, 0.5, 0.6]]], vocab)
        >>> slots.rows_M4, slots.boxes_M4
        (tensor([[2, 3, 4, 5]]), tensor([[0.1100, 0.1900, 0.5000, 0.6000]]))
    """

    rows_M4: Tensor
    boxes_M4: Tensor
    image_M: Tensor
    fallbacks: int = 0
    skipped: int = 0
    weights_M: Tensor | None = None
    coords: CoordRows | None = None
    said_M: Tensor | None = None
    label_M: Tensor | None = None

    def __post_init__(self) -> None:
        M = self.image_M.numel()
        if self.weights_M is not None and self.weights_M.shape != (M,):
            raise ValueError(f"weights_M must be [{M}], one per object, got {tuple(self.weights_M.shape)}")
        if self.rows_M4.shape != (M, 4) or self.boxes_M4.shape != (M, 4) or self.image_M.shape != (M,):
            raise ValueError(
                "rows_M4 and boxes_M4 must be [M, 4] and image_M [M], got "
                f"{tuple(self.rows_M4.shape)}, {tuple(self.boxes_M4.shape)}, {tuple(self.image_M.shape)}"
            )

    def __len__(self) -> int:
        return self.image_M.numel()

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "ObjectSlots":
        """Return the same slots on another device."""
        names = ("rows_M4", "boxes_M4", "image_M", "weights_M", "coords", "said_M", "label_M")
        return replace(
            self, **{n: x.to(device, non_blocking=non_blocking) for n in names if (x := getattr(self, n)) is not None}
        )

    @classmethod
    def from_layouts(
        cls,
        layouts: Sequence[SequenceLayout],
        labels_BT: Tensor,
        boxes: Sequence[Sequence[Box] | None],
        vocab: CoordVocab,
        *,
        weights: Sequence[Sequence[float] | None] | None = None,
        batch_rows: Sequence[int] | None = None,
        starts: Sequence[int] | None = None,
        ignore_index: int = -100,
        geometry: str | Geometry = "box",
    ) -> "ObjectSlots":
        """Find the rows of every object and the box it should decode to.

        A sequence that was cut off holds a run of consecutive objects: the first ones, the last ones, or those between.
        Where there are more boxes than objects, the run is found by its labels: of all places in the list, the one
        where most boxes lie within a bin of the labels, and the first of these. An object whose box does not fit
        falls back on its labels, so that boxes in another order than the text are noticed.

        Args:
            layouts: one per sample, from the label ids of that sample
            labels_BT: labels of the batch as the model sees them, padded or packed
            boxes: per sample the true boxes in the order of the target text, or None; of another geometry the true
                coordinates in the order in which they are written (`coord_codec.coordinates_of`)
            vocab: the coordinate tokens
            weights: per sample a factor for each object in the order of the target text, or None for 1
            batch_rows: the row of `labels_BT` each sample lies in; by default sample i in row i
            starts: the column at which each sample begins there (left padding, packing); by default 0
            ignore_index: the label that is not trained on
            geometry: what the objects are, see `coord_codec.geometry`

        Raises:
            ValueError: the lists differ in length, or a layout and the labels disagree on where the
                coordinates are
        """
        batch_rows = range(len(layouts)) if batch_rows is None else batch_rows
        starts = [0] * len(layouts) if starts is None else starts
        factors: Sequence[Sequence[float] | None] = [None] * len(layouts) if weights is None else weights
        sizes = [len(x) for x in (layouts, boxes, factors, batch_rows, starts)]
        if len(set(sizes)) != 1:
            raise ValueError(
                "layouts, boxes, weights, batch_rows and starts need one entry per sample, got "
                + ", ".join(map(str, sizes))
            )
        labels = labels_BT.tolist()
        # The row each position becomes in `supervised_rows`; -1 for a position that predicts nothing supervised.
        mask_BS = labels_BT[:, 1:] != ignore_index
        row_numbers = torch.where(mask_BS, mask_BS.flatten().cumsum(0).view(mask_BS.shape) - 1, -1).tolist()
        kind = geometry_of(geometry)
        rows, true_boxes, images, object_weights, fallbacks, skipped = [], [], [], [], 0, 0
        names: dict[tuple[int, ...], int] = {}
        said: list[int] = []
        for image, (layout, given, own, b, start) in enumerate(
            zip(layouts, boxes, factors, batch_rows, starts, strict=True)
        ):
            skipped += len(layout.reasons)
            if own is not None and len(own) < len(layout.objects):
                raise ValueError(
                    f"sample {image}: {len(own)} weights for {len(layout.objects)} objects; give one for each"
                )
            # Per object: the rows that predict it, its coordinates by its labels and its name; None if it is left out.
            usable: list[tuple[list[int], list[float], int] | None] = []
            for found in layout.objects:
                columns = [start + position for position in found.coord_positions]
                _check_columns(labels[b], columns, vocab, image)
                own_rows = [row_numbers[b][column - 1] if column else -1 for column in columns]
                fits = kind.fits(len(columns)) and -1 not in own_rows
                bins = [vocab.id_to_bin(labels[b][column]) for column in columns] if fits else []
                words = tuple(labels[b][start + position] for position in found.desc_positions)
                name = names.setdefault(words, len(names))
                usable.append((own_rows, [vocab.grid.dequantize(k) for k in bins], name) if fits else None)
            first = _first_kept(() if given is None else given, [part and part[1] for part in usable], vocab)
            for index, part in enumerate(usable, start=first):
                if part is None:
                    skipped += 1
                    continue
                own_rows, decoded, name = part
                true_box = given[index] if given is not None and index < len(given) else None
                if true_box is None or not _agree(true_box, decoded, vocab):
                    true_box = decoded
                    fallbacks += 1
                rows.append(own_rows)
                true_boxes.append(list(true_box))
                said.append(name)
                images.append(image)
                object_weights.append(1.0 if own is None else own[index])
        said_M = None if () in names else torch.tensor(said, dtype=torch.long)
        shaped = {} if kind.name == "box" else _shaped(kind, rows, true_boxes)
        return cls(
            torch.tensor(shaped.get("sides", rows), dtype=torch.long).view(-1, 4),
            torch.tensor(shaped.get("boxes", true_boxes), dtype=torch.float32).view(-1, 4),
            torch.tensor(images, dtype=torch.long),
            fallbacks=fallbacks,
            skipped=skipped,
            weights_M=None if weights is None else torch.tensor(object_weights, dtype=torch.float32),
            coords=shaped.get("coords"),
            said_M=said_M,
            label_M=said_M,
        )


def _shaped(kind: Geometry, rows: list[list[int]], shapes: list[list[float]]) -> dict[str, Any]:
    """Return the boxes around true shapes, the rows at their sides, and every coordinate with its object."""
    boxes = [kind.to_box(tuple(shape)) for shape in shapes]
    sides = [
        [own[next(i for i in range(axis % 2, len(own), 2) if shape[i] == box[axis])] for axis in range(4)]
        for own, shape, box in zip(rows, shapes, boxes, strict=True)
    ]
    counts = torch.tensor([len(own) for own in rows], dtype=torch.long)
    coords = CoordRows(
        torch.tensor([row for own in rows for row in own], dtype=torch.long),
        torch.tensor([c for shape in shapes for c in shape], dtype=torch.float32),
        torch.arange(len(rows)).repeat_interleave(counts),
    )
    return {"boxes": boxes, "sides": sides, "coords": coords}


def _check_columns(labels: list[int], columns: list[int], vocab: CoordVocab, sample: int) -> None:
    for column in columns:
        label = labels[column] if 0 <= column < len(labels) else None
        if label is None or (label >= 0 and label not in vocab.ids):
            raise ValueError(
                f"sample {sample}: the layout has a coordinate in column {column}, the label there is {label}; "
                "do batch_rows and starts say where the sample lies in labels_BT, and was it cut off afterwards?"
            )


def _first_kept(boxes: Sequence[Box], decoded: Sequence[list[float] | None], vocab: CoordVocab) -> int:
    """Return the place in `boxes` of the first object left in a sequence: 0 unless another fits better."""
    spare = max(len(boxes) - len(decoded), 0)

    def agreeing(first: int) -> int:
        pairs = zip(boxes[first:], decoded, strict=False)
        return sum(label is not None and _agree(box, label, vocab) for box, label in pairs)

    return max(range(spare + 1), key=agreeing) if spare else 0


def _agree(true_box: Box, decoded: list[float], vocab: CoordVocab) -> bool:
    # Rounding moves a coordinate by half a bin, clamping at the far edge by a whole one.
    return len(true_box) == len(decoded) and all(
        abs(true - label) * vocab.grid.scale < 1.5 for true, label in zip(true_box, decoded, strict=True)
    )
