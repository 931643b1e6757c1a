"""The supervised rows of a batch: which row predicts which label, and which four rows decode which object.

Shapes: B samples, T positions, N supervised rows, C of them with a coordinate as target, M objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coord_codec import CoordVocab, SequenceLayout

Box = Sequence[float]


def supervised_rows(x_BTD: Tensor, labels_BT: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Pair each supervised label with the row that predicts it, one position before.

    Rows come sample by sample, in order of position. A label in the first column has no row before it and
    is not trained on, as in Hugging Face's models.

    Args:
        x_BTD: hidden states or logits, one per position; further dimensions are kept
        labels_BT: token ids, `ignore_index` where nothing is trained
        ignore_index: the label that is left out

    Returns:
        `(x_ND, targets_N)`: the rows and their token ids.

    Raises:
        ValueError: batch or length differ

    Example:
        >>> import torch
        >>> hidden = torch.tensor([[[0.0], [1.0], [2.0], [3.0]]])
        >>> supervised_rows(hidden, torch.tensor([[-100, -100, 7, 8]]))
        (tensor([[1.],
                [2.]]), tensor([7, 8]))
    """
    if x_BTD.shape[:2] != labels_BT.shape:
        raise ValueError(
            f"x_BTD is {tuple(x_BTD.shape)} and labels_BT {tuple(labels_BT.shape)}: the first two dimensions must agree"
        )
    targets_BS = labels_BT[:, 1:]  # S = T - 1
    b_N, s_N = (targets_BS != ignore_index).nonzero(as_tuple=True)  # the device is asked once, for both
    return x_BTD[b_N.to(x_BTD.device), s_N.to(x_BTD.device)], targets_BS[b_N, s_N]


@dataclass(frozen=True)
class ObjectSlots:
    """The objects of a batch: which rows decode each, and its true box. Only this class assumes four coordinates.

    Attributes:
        rows_M4: int64, rows of `supervised_rows` that predict x1, y1, x2, y2 of each object
        boxes_M4: the true continuous boxes in [0, 1], not the bins they were rounded to
        image_M: int64, the sample each object belongs to
        weights_M: factor of each object in the terms of its box and of its four coordinates; None for 1.
            Denominators stay counts
        fallbacks: objects whose box is the dequantised label, since no usable true box was given
        skipped: objects left out: cut off or malformed in the sequence (what the layout omits), not four
            coordinates, or a coordinate that is not supervised

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
        names = ("rows_M4", "boxes_M4", "image_M", "weights_M")
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
    ) -> "ObjectSlots":
        """Find the rows of every object and the box it should decode to.

        A sequence that was cut off holds a run of consecutive objects: the first ones, the last ones, or those between.
        Where there are more boxes than objects, the run is found by its labels: of all places in the list, the one
        where most boxes lie within a bin of the labels, and the first of these. An object whose box does not fit
        falls back on its labels, so that boxes in another order than the text are noticed.

        Args:
            layouts: one per sample, from the label ids of that sample
            labels_BT: labels of the batch as the model sees them, padded or packed
            boxes: per sample the true boxes in the order of the target text, or None
            vocab: the coordinate tokens
            weights: per sample a factor for each object in the order of the target text, or None for 1
            batch_rows: the row of `labels_BT` each sample lies in; by default sample i in row i
            starts: the column at which each sample begins there (left padding, packing); by default 0
            ignore_index: the label that is not trained on

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
        rows, true_boxes, images, object_weights, fallbacks, skipped = [], [], [], [], 0, 0
        for image, (layout, given, own, b, start) in enumerate(
            zip(layouts, boxes, factors, batch_rows, starts, strict=True)
        ):
            skipped += len(layout.reasons)
            if own is not None and len(own) < len(layout.objects):
                raise ValueError(
                    f"sample {image}: {len(own)} weights for {len(layout.objects)} objects; give one for each"
                )
            # Per object: the rows that predict it and the box of its labels; None for one that is left out.
            usable: list[tuple[list[int], list[float]] | None] = []
            for found in layout.objects:
                columns = [start + position for position in found.coord_positions]
                _check_columns(labels[b], columns, vocab, image)
                four_rows = [row_numbers[b][column - 1] if column else -1 for column in columns]
                fits = len(columns) == 4 and -1 not in four_rows
                bins = [vocab.id_to_bin(labels[b][column]) for column in columns] if fits else []
                usable.append((four_rows, [vocab.grid.dequantize(k) for k in bins]) if fits else None)
            first = _first_kept(() if given is None else given, [part and part[1] for part in usable], vocab)
            for index, part in enumerate(usable, start=first):
                if part is None:
                    skipped += 1
                    continue
                four_rows, decoded = part
                true_box = given[index] if given is not None and index < len(given) else None
                if true_box is None or not _agree(true_box, decoded, vocab):
                    true_box = decoded
                    fallbacks += 1
                rows.append(four_rows)
                true_boxes.append(list(true_box))
                images.append(image)
                object_weights.append(1.0 if own is None else own[index])
        return cls(
            torch.tensor(rows, dtype=torch.long).view(-1, 4),
            torch.tensor(true_boxes, dtype=torch.float32).view(-1, 4),
            torch.tensor(images, dtype=torch.long),
            fallbacks=fallbacks,
            skipped=skipped,
            weights_M=None if weights is None else torch.tensor(object_weights, dtype=torch.float32),
        )


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
    return len(true_box) == 4 and all(
        abs(true - label) * vocab.grid.scale < 1.5 for true, label in zip(true_box, decoded, strict=True)
    )


@dataclass(frozen=True)
class Batch:
    """Targets and objects of a batch, checked and sorted into text rows and coordinate rows.

    Attributes:
        text_rows: rows whose target is no coordinate, ascending
        coord_rows_C: rows whose target is a coordinate, ascending
        bins_C: the true bin of each coordinate row
        slots_M4: which coordinate rows (0..C-1) decode each object
        boxes_M4: the true box of each object
        image_M: the sample each object belongs to
        weights_M: the weight of each object; None for 1
        counts: the batch's own denominators
    """

    text_rows: Tensor
    coord_rows_C: Tensor
    bins_C: Tensor
    slots_M4: Tensor
    boxes_M4: Tensor
    image_M: Tensor
    weights_M: Tensor | None
    counts: dict[str, Tensor]

    @classmethod
    def sort(
        cls, targets_N: Tensor, objects: ObjectSlots | None, vocab: CoordVocab | None, num_rows: int, vocab_size: int
    ) -> "Batch":
        """Sort the rows by their target.

        Args:
            targets_N: the token id each row should predict
            objects: the objects of the batch, or None
            vocab: the coordinate tokens, or None
            num_rows: rows of logits or hidden states
            vocab_size: ids the head covers

        Raises:
            ValueError: shapes disagree, a target lies outside the vocabulary, or an object names a row that
                does not exist or whose target is no coordinate
        """
        if targets_N.shape != (num_rows,):
            raise ValueError(f"targets_N must be [{num_rows}], one per row, got {tuple(targets_N.shape)}")
        is_coord_N = torch.zeros_like(targets_N, dtype=torch.bool) if vocab is None else vocab.mask(targets_N)
        if objects is None:
            none_M4 = torch.zeros(0, 4)
            objects = ObjectSlots(none_M4.long(), none_M4, none_M4[:, 0].long())
        objects = objects.to(targets_N.device)
        num_coords = _check(targets_N, objects.rows_M4, is_coord_N, vocab_size)
        # A stable sort: its parts are known by their sizes, where a mask's rows would have to be asked for.
        text_rows, coord_rows_C = is_coord_N.int().sort(stable=True).indices.tensor_split([num_rows - num_coords])
        slots_M4 = (is_coord_N.cumsum(0) - 1)[objects.rows_M4]
        sizes = {"tokens": num_rows, "coord_tokens": num_coords, "objects": len(slots_M4)}
        return cls(
            text_rows=text_rows,
            coord_rows_C=coord_rows_C,
            bins_C=targets_N[coord_rows_C] - (0 if vocab is None else vocab.first_id),
            slots_M4=slots_M4,
            boxes_M4=objects.boxes_M4,
            image_M=objects.image_M,
            weights_M=objects.weights_M,
            counts={key: torch.tensor(size, device=targets_N.device) for key, size in sizes.items()},
        )


def _check(targets_N: Tensor, rows_M4: Tensor, is_coord_N: Tensor, vocab_size: int) -> int:
    """Return the number of coordinate rows; everything is asked of the device at once.

    Raises:
        ValueError: see `Batch.sort`
    """
    num_rows, num_objects = len(targets_N), len(rows_M4)
    if not num_rows:
        if num_objects:
            raise ValueError("objects.rows_M4 names rows, the batch has 0; supervised_rows selects none")
        return 0
    facts = [targets_N.min(), targets_N.max(), is_coord_N.sum()]
    if num_objects:
        facts += [rows_M4.min(), rows_M4.max(), is_coord_N[rows_M4.clamp(0, num_rows - 1)].all()]
    low, high, num_coords, *slots = torch.stack([fact.long() for fact in facts]).tolist()
    if not 0 <= low <= high < vocab_size:
        raise ValueError(
            f"targets_N must be ids in 0..{vocab_size - 1}, got {low}..{high}; "
            "supervised_rows leaves ignored labels out"
        )
    if slots and (slots[0] < 0 or slots[1] >= num_rows):
        raise ValueError(
            f"objects.rows_M4 names rows {slots[0]}..{slots[1]}, the batch has {num_rows}; "
            "they index the rows that supervised_rows selects"
        )
    if slots and not slots[2]:
        raise ValueError(
            "objects.rows_M4 names rows whose target is no coordinate token; "
            "were the slots made from the labels of this batch?"
        )
    return int(num_coords)
