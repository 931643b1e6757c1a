"""Object slots: the rows of a batch that decode each object, and its ground truth.

Shapes: N supervised rows, M objects, P coordinates of all objects.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from coord_codec import GEOMETRIES, CoordVocab, Geometry, SequenceLayout, geometry_of
from coord_losses.places import Columns, Place, agree, join, places_of

Coordinates = Sequence[float]


def _move(x: Tensor, device: torch.device | str, non_blocking: bool) -> Tensor:
    if torch.device(device).type == "mps" and x.dtype == torch.float64:  # Apple's GPUs have no float64
        x = x.float()
    return x.to(device, non_blocking=non_blocking)


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
        tensors = (self.rows_P, self.true_P, self.object_P)
        rows_P, true_P, object_P = (_move(tensor, device, non_blocking) for tensor in tensors)
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
        boxes_M4: ground-truth boxes in [0, 1], not quantised, float64 where the device has it (the losses convert them
            to the dtype of the logits); for other geometries the boxes around the shapes
        image_M: int64, the sample that contains each object
        fallbacks: number of objects whose box is the dequantised label, since no usable ground-truth box was given
        skipped: number of objects left out: cut off or malformed in the sequence (the layout's omissions), with a
            wrong number of coordinates, or with only some of their coordinates supervised
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
        (tensor([[2, 3, 4, 5]]), tensor([[0.1100, 0.1900, 0.5000, 0.6000]], dtype=torch.float64))
    """

    rows_M4: Tensor
    boxes_M4: Tensor
    image_M: Tensor
    fallbacks: int = 0
    skipped: int = 0
    coords: CoordRows | None = None
    said_M: Tensor | None = None
    label_M: Tensor | None = None

    def __post_init__(self) -> None:
        M = self.image_M.numel()
        if self.rows_M4.shape != (M, 4) or self.boxes_M4.shape != (M, 4) or self.image_M.shape != (M,):
            raise ValueError(
                "rows_M4 and boxes_M4 must be [M, 4] and image_M [M], got "
                f"{tuple(self.rows_M4.shape)}, {tuple(self.boxes_M4.shape)}, {tuple(self.image_M.shape)}"
            )

    @classmethod
    def none(cls) -> "ObjectSlots":
        """Return the slots of a batch without objects."""
        return cls(torch.zeros(0, 4, dtype=torch.long), torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))

    def __len__(self) -> int:
        return self.image_M.numel()

    @property
    def rows_P(self) -> Tensor:  # noqa: N802  (shape suffix)
        """The row of each coordinate of the objects [P]."""
        return self.rows_M4.flatten() if self.coords is None else self.coords.rows_P

    @property
    def true_P(self) -> Tensor:  # noqa: N802  (shape suffix)
        """The ground truth of each coordinate of the objects [P]."""
        return self.boxes_M4.flatten() if self.coords is None else self.coords.true_P

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "ObjectSlots":
        """Return a copy on another device."""
        names = ("rows_M4", "boxes_M4", "image_M", "said_M", "label_M")
        moved: dict[str, Any] = {
            name: _move(x, device, non_blocking) for name in names if (x := getattr(self, name)) is not None
        }
        return replace(self, coords=None if self.coords is None else self.coords.to(device, non_blocking), **moved)

    @classmethod
    def from_layouts(
        cls,
        layouts: Sequence[SequenceLayout],
        labels_BT: Tensor,
        boxes: Sequence[Sequence[Coordinates] | None],
        vocab: CoordVocab,
        *,
        ids_BT: Tensor | None = None,
        batch_rows: Sequence[int] | None = None,
        starts: Sequence[int] | None = None,
        ignore_index: int = -100,
        geometry: str | Geometry = "box",
    ) -> "ObjectSlots":
        """Find the rows of every object and its ground-truth box.

        Boxes belong to the objects by their place in the text. If their number differs from that of the places, since
        the sequence was cut off at either end or objects are masked, they keep their order, and those belong together
        of which most boxes lie within a bin of the labels. For an object whose box still does not agree, the labels
        are used instead (`fallbacks`), which reveals boxes in another order than the text.

        Args:
            layouts: one per sample, from its token ids or its labels; only ids show the place of masked objects
            labels_BT: labels of the batch as passed to the model, padded or packed
            boxes: ground-truth boxes of each sample in the order of the target text, or None; for other geometries
                the coordinates in the order of the text (`coord_codec.coordinates_of`)
            vocab: the coordinate tokens
            ids_BT: token ids of the batch, for the descriptions of objects that are not supervised; None for the labels
            batch_rows: the row of `labels_BT` that contains each sample; by default sample i is in row i
            starts: the column at which each sample begins in that row (left padding, packing); by default 0
            ignore_index: the label of positions that are not supervised
            geometry: the geometry of the objects, see `coord_codec.geometry`

        Raises:
            ValueError: if the lists differ in length, or a layout and the labels disagree on the positions of
                coordinates
        """
        # One entry per sample in every list
        batch_rows = range(len(layouts)) if batch_rows is None else batch_rows
        starts = [0] * len(layouts) if starts is None else starts
        sizes = [len(x) for x in (layouts, boxes, batch_rows, starts)]
        if len(set(sizes)) != 1:
            raise ValueError(
                f"layouts, boxes, batch_rows and starts need one entry per sample, got {', '.join(map(str, sizes))}"
            )

        # The objects of every sample, with the ground truth that belongs to their place in the text
        kind = geometry_of(geometry)
        rows_BT = _rows_of(labels_BT, ignore_index)
        columns = [
            Columns(*row)
            for row in zip(
                *(x.tolist() for x in (labels_BT, labels_BT if ids_BT is None else ids_BT, rows_BT)), strict=True
            )
        ]
        found: list[tuple[int, Place, Coordinates | None]] = []
        skipped = strays = 0
        for image, (layout, own, b, start) in enumerate(zip(layouts, boxes, batch_rows, starts, strict=True)):
            places = places_of(image, layout, start, columns[b], vocab, kind)
            whole = sum(place.usable or place.hidden for place in places)
            skipped += len(layout.reasons) + len(layout.objects) - whole
            if not places:
                strays += sum(columns[b].rows_T[start + position] >= 0 for position in layout.coord_positions)
            for place, index in zip(places, join(places, own, vocab), strict=True):
                box = None if own is None or index is None else own[index]
                if place.usable:
                    found.append((image, place, box if box is not None and agree(box, place.decoded, vocab) else None))
        if strays and not found:
            warnings.warn(
                f"{strays} coordinate tokens of the batch are supervised, but none of them belongs to an object, and "
                "the box loss is 0: make the layouts of the token ids instead of the labels if markers and "
                "descriptions are masked, or find_layout(markers=...) of what the text is written with",
                stacklevel=2,
            )

        words = [place.words for _, place, _ in found]
        names = {description: name for name, description in enumerate(dict.fromkeys(words))}
        said_M = None if () in names else torch.tensor([names[one] for one in words], dtype=torch.long)
        rows = [list(place.rows) for _, place, _ in found]
        true = [list(place.decoded if box is None else box) for _, place, box in found]
        fields = {} if kind.is_box else _shape_fields(kind, rows, true)
        return cls(
            torch.tensor(fields.get("sides", rows), dtype=torch.long).view(-1, 4),
            torch.tensor(fields.get("boxes", true), dtype=torch.float64).view(-1, 4),
            torch.tensor([image for image, _, _ in found], dtype=torch.long),
            fallbacks=sum(box is None for _, _, box in found),
            skipped=skipped,
            coords=fields.get("coords"),
            said_M=said_M,
            label_M=said_M,
        )


def _rows_of(labels_BT: Tensor, ignore_index: int) -> Tensor:
    """Return the row of `supervised_rows` that predicts the token at each position [B, T]; -1 for none."""
    mask_BT = labels_BT != ignore_index
    mask_BT[:, :1] = False  # nothing precedes the first token
    return torch.where(mask_BT, mask_BT.flatten().cumsum(0).view(mask_BT.shape) - 1, -1)


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
        torch.tensor([c for shape in shapes for c in shape], dtype=torch.float64),
        torch.arange(len(rows)).repeat_interleave(counts),
        kind,
    )
    return {"boxes": boxes, "sides": sides, "coords": coords}


def _at_side(kind: Geometry, shape: list[float], box: Coordinates, side: int) -> int:
    """Return the index of the coordinate that lies at a side of the box; of an outline without vertices the first."""
    axis = "y" if side % 2 else "x"
    along = [i for i in range(len(shape)) if kind.number_at(i) == axis]
    return next((i for i in along if shape[i] == box[side]), along[0])
