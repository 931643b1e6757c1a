"""Object slots: the rows of a batch that decode each object, and its ground truth.

Shapes: N supervised rows, M objects, P coordinates of all objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from coord_codec import GEOMETRIES, CoordVocab, Geometry, SequenceLayout, geometry_of

Box = Sequence[float]


@dataclass(frozen=True)
class CoordRows:
    """The coordinates of shapes other than boxes, sorted by object, in the order of their geometry.

    Attributes:
        rows_P: int64, the row that predicts each coordinate
        true_P: the ground-truth coordinates in [0, 1], not quantised
        object_P: int64, the object of each coordinate, ascending
        geometry: the geometry of the objects, by default one of alternating x and y

    Example:
        >>> import torch
        >>> CoordRows(torch.tensor([4, 5]), torch.tensor([0.25, 0.5]), torch.tensor([0, 0])).is_x_P
        tensor([ True, False])
    """

    rows_P: Tensor
    true_P: Tensor
    object_P: Tensor
    geometry: Geometry = GEOMETRIES["polygon"]

    def __post_init__(self) -> None:
        if not self.rows_P.shape == self.true_P.shape == self.object_P.shape or self.rows_P.dim() != 1:
            raise ValueError(
                "rows_P, true_P and object_P must be [P] each, got "
                f"{tuple(self.rows_P.shape)}, {tuple(self.true_P.shape)}, {tuple(self.object_P.shape)}"
            )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "CoordRows":
        """Return a copy on another device."""
        rows_P, true_P, object_P = (
            tensor.to(device, non_blocking=non_blocking) for tensor in (self.rows_P, self.true_P, self.object_P)
        )
        return CoordRows(rows_P, true_P, object_P, self.geometry)

    @property
    def is_x_P(self) -> Tensor:  # noqa: N802  (shape suffix)
        """Whether each coordinate is an x [P]."""
        return self._is("x")

    @property
    def is_angle_P(self) -> Tensor:  # noqa: N802  (shape suffix)
        """Whether each coordinate is an angle [P]."""
        return self._is("angle")

    def _is(self, number: str) -> Tensor:
        numbers = torch.tensor([name == number for name in self.geometry.numbers], device=self.rows_P.device)
        # Objects are sorted, and begin where the object changes; without a loop, and without waiting for the device.
        place_P = torch.arange(len(self.rows_P), device=self.rows_P.device)
        begins_P = torch.ones_like(self.object_P, dtype=torch.bool)
        begins_P[1:] = self.object_P[1:] != self.object_P[:-1]
        first_P = (place_P * begins_P).cummax(0).values if len(place_P) else place_P
        return numbers[(place_P - first_P) % len(numbers)]


@dataclass(frozen=True)
class ObjectSlots:
    """The objects of a batch: the rows that decode each object, and its ground-truth box.

    Attributes:
        rows_M4: int64, rows of `supervised_rows` that predict x1, y1, x2, y2 of each object; for other geometries the
            rows of the vertices at these sides of its ground-truth box, or of the first x and y if it has none there
        boxes_M4: ground-truth boxes in [0, 1], not quantised; for other geometries the boxes around the shapes
        image_M: int64, the sample that contains each object
        weights_M: factor of each object in the terms of its box and its coordinates; None for 1. Denominators are
            still plain counts
        fallbacks: number of objects whose box is the dequantised label, since no usable ground-truth box was given
        skipped: number of objects left out: cut off or malformed in the sequence (the layout's omissions), with a
            wrong number of coordinates, or with a coordinate that is not supervised
        coords: all coordinates of shapes other than boxes; None for boxes
        said_M: int64 id of each object's description in the text, equal for equal descriptions; None if layouts have
            no descriptions (JSON)
        label_M: int64 id of the description of each ground-truth object in `boxes_M4`

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
        """Return a copy on another device."""
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
        """Find the rows of every object and its ground-truth box.

        A sequence that was cut off contains a run of consecutive objects from anywhere in the list of boxes. If there
        are more boxes than objects, the first position in the list is used at which most boxes lie within a bin of
        the labels. For an object whose box still does not agree, the labels are used instead (`fallbacks`), which
        reveals boxes in another order than the text.

        Args:
            layouts: one per sample, from the label ids of that sample
            labels_BT: labels of the batch as passed to the model, padded or packed
            boxes: ground-truth boxes of each sample in the order of the target text, or None; for other geometries
                the coordinates in the order of the text (`coord_codec.coordinates_of`)
            vocab: the coordinate tokens
            weights: for each sample a factor for each object in the order of the target text, or None for 1
            batch_rows: the row of `labels_BT` that contains each sample; by default sample i is in row i
            starts: the column at which each sample begins in that row (left padding, packing); by default 0
            ignore_index: the label of positions that are not supervised
            geometry: the geometry of the objects, see `coord_codec.geometry`

        Raises:
            ValueError: if the lists differ in length, or a layout and the labels disagree on the positions of
                coordinates
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
        # The row number of each position in `supervised_rows`; -1 if the label it predicts is not supervised.
        mask_BS = labels_BT[:, 1:] != ignore_index
        row_numbers = torch.where(mask_BS, mask_BS.flatten().cumsum(0).view(mask_BS.shape) - 1, -1).tolist()
        kind = geometry_of(geometry)
        rows, true_boxes, images, object_weights, fallbacks, skipped = [], [], [], [], 0, 0
        names: dict[tuple[int, ...], int] = {}
        description_ids: list[int] = []
        for image, (layout, image_boxes, image_factors, b, start) in enumerate(
            zip(layouts, boxes, factors, batch_rows, starts, strict=True)
        ):
            skipped += len(layout.reasons)
            if image_factors is not None and len(image_factors) < len(layout.objects):
                raise ValueError(
                    f"sample {image}: {len(image_factors)} weights for {len(layout.objects)} objects; give one for each"
                )
            # For each object: the rows that predict it, its dequantised labels and its name; None if it is left out.
            entries: list[tuple[list[int], list[float], int] | None] = []
            for obj in layout.objects:
                columns = [start + position for position in obj.coord_positions]
                _check_columns(labels[b], columns, vocab, image)
                own_rows = [row_numbers[b][column - 1] if column else -1 for column in columns]
                fits = kind.fits(len(columns)) and -1 not in own_rows
                bins = [vocab.id_to_bin(labels[b][column]) for column in columns] if fits else []
                words = tuple(labels[b][start + position] for position in obj.desc_positions)
                name = names.setdefault(words, len(names))
                entries.append((own_rows, [vocab.grid.dequantize(k) for k in bins], name) if fits else None)
            first = _best_start(() if image_boxes is None else image_boxes, [e and e[1] for e in entries], vocab)
            for index, entry in enumerate(entries, start=first):
                if entry is None:
                    skipped += 1
                    continue
                own_rows, decoded, name = entry
                true_box = image_boxes[index] if image_boxes is not None and index < len(image_boxes) else None
                if true_box is None or not _agree(true_box, decoded, vocab):
                    true_box = decoded
                    fallbacks += 1
                rows.append(own_rows)
                true_boxes.append(list(true_box))
                description_ids.append(name)
                images.append(image)
                object_weights.append(1.0 if image_factors is None else image_factors[index])
        said_M = None if () in names else torch.tensor(description_ids, dtype=torch.long)
        fields = {} if kind.is_box else _shape_fields(kind, rows, true_boxes)
        return cls(
            torch.tensor(fields.get("sides", rows), dtype=torch.long).view(-1, 4),
            torch.tensor(fields.get("boxes", true_boxes), dtype=torch.float32).view(-1, 4),
            torch.tensor(images, dtype=torch.long),
            fallbacks=fallbacks,
            skipped=skipped,
            weights_M=None if weights is None else torch.tensor(object_weights, dtype=torch.float32),
            coords=fields.get("coords"),
            said_M=said_M,
            label_M=said_M,
        )


def _shape_fields(kind: Geometry, rows: list[list[int]], shapes: list[list[float]]) -> dict[str, Any]:
    """Return the boxes around ground-truth shapes, the rows at their sides, and all coordinates with their objects."""
    boxes = [kind.to_box(tuple(shape)) for shape in shapes]
    sides = [
        [shape_rows[_at_side(kind, shape, box, side)] for side in range(4)]
        for shape_rows, shape, box in zip(rows, shapes, boxes, strict=True)
    ]
    counts = torch.tensor([len(shape_rows) for shape_rows in rows], dtype=torch.long)
    coords = CoordRows(
        torch.tensor([row for shape_rows in rows for row in shape_rows], dtype=torch.long),
        torch.tensor([c for shape in shapes for c in shape], dtype=torch.float32),
        torch.arange(len(rows)).repeat_interleave(counts),
        kind,
    )
    return {"boxes": boxes, "sides": sides, "coords": coords}


def _at_side(kind: Geometry, shape: list[float], box: Box, side: int) -> int:
    """Return the index of the coordinate that lies at a side of the box; of an outline without vertices the first."""
    axis = "y" if side % 2 else "x"
    along = [i for i in range(len(shape)) if kind.number_at(i) == axis]
    return next((i for i in along if shape[i] == box[side]), along[0])


def _check_columns(labels: list[int], columns: list[int], vocab: CoordVocab, sample: int) -> None:
    for column in columns:
        label = labels[column] if 0 <= column < len(labels) else None
        if label is None or (label >= 0 and label not in vocab.ids):
            raise ValueError(
                f"sample {sample}: the layout has a coordinate in column {column}, the label there is {label}; "
                "do batch_rows and starts say where the sample lies in labels_BT, and was it cut off afterwards?"
            )


def _best_start(boxes: Sequence[Box], decoded: Sequence[list[float] | None], vocab: CoordVocab) -> int:
    """Return the index in `boxes` of the first object of a sequence: 0 unless more boxes agree at another index."""
    spare = max(len(boxes) - len(decoded), 0)

    def num_agreeing(first: int) -> int:
        pairs = zip(boxes[first:], decoded, strict=False)
        return sum(label is not None and _agree(box, label, vocab) for box, label in pairs)

    return max(range(spare + 1), key=num_agreeing) if spare else 0


def _agree(true_box: Box, decoded: list[float], vocab: CoordVocab) -> bool:
    # Rounding changes a coordinate by at most half a bin, clamping at the upper end by a whole bin.
    return len(true_box) == len(decoded) and all(
        abs(true - label) * vocab.grid.scale < 1.5 for true, label in zip(true_box, decoded, strict=True)
    )
