"""Which rows decode which object: the only place that assumes four coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coord_codec import CoordVocab, SequenceLayout
from coord_losses.rows import row_numbers

Box = Sequence[float]


@dataclass(frozen=True)
class ObjectSlots:
    """The objects of a batch, for the terms that need whole boxes.

    Attributes:
        rows_M4: int64, rows of `supervised_rows` that predict x1, y1, x2, y2 of each object.
        boxes_M4: the true continuous boxes in [0, 1], not the bins they were rounded to.
        image_M: int64, the sample each object belongs to.
        fallbacks: objects whose box is the dequantised label, since no usable true box was given.
        skipped: objects left out: cut off or malformed in the sequence (what the layout omits), not four
            coordinates, or a coordinate that is not supervised.
    """

    rows_M4: Tensor
    boxes_M4: Tensor
    image_M: Tensor
    fallbacks: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        M = self.image_M.numel()
        if self.rows_M4.shape != (M, 4) or self.boxes_M4.shape != (M, 4) or self.image_M.shape != (M,):
            raise ValueError(
                "rows_M4 and boxes_M4 must be [M, 4] and image_M [M], got "
                f"{tuple(self.rows_M4.shape)}, {tuple(self.boxes_M4.shape)}, {tuple(self.image_M.shape)}"
            )

    def __len__(self) -> int:
        return self.image_M.numel()

    def to(self, device: torch.device | str) -> "ObjectSlots":
        """The same slots on another device."""
        return replace(
            self,
            rows_M4=self.rows_M4.to(device),
            boxes_M4=self.boxes_M4.to(device),
            image_M=self.image_M.to(device),
        )

    @classmethod
    def from_layouts(
        cls,
        layouts: Sequence[SequenceLayout],
        labels_BT: Tensor,
        boxes: Sequence[Sequence[Box] | None],
        vocab: CoordVocab,
        *,
        batch_rows: Sequence[int] | None = None,
        starts: Sequence[int] | None = None,
        ignore_index: int = -100,
    ) -> "ObjectSlots":
        """Finds the rows of every object and the box it should decode to.

        Box i belongs to object i if it lies within a bin of that object's labels; an object without such a
        box falls back on its labels. So a sequence that was cut off keeps the true boxes of what is left, and
        boxes in another order than the text are noticed.

        Args:
            layouts: one per sample, from the label ids of that sample.
            labels_BT: labels of the batch as the model sees them, padded or packed.
            boxes: per sample the true boxes in the order of the target text, or None.
            vocab: the coordinate tokens.
            batch_rows: the row of `labels_BT` each sample lies in; by default sample i in row i.
            starts: the column at which each sample begins there (left padding, packing); by default 0.
            ignore_index: the label that is not trained on.

        Raises:
            ValueError: the lists differ in length, or a layout and the labels disagree on where the
                coordinates are.
        """
        batch_rows = range(len(layouts)) if batch_rows is None else batch_rows
        starts = [0] * len(layouts) if starts is None else starts
        lengths = {len(layouts), len(boxes), len(batch_rows), len(starts)}
        if len(lengths) != 1:
            raise ValueError(
                "layouts, boxes, batch_rows and starts need one entry per sample, got "
                f"{len(layouts)}, {len(boxes)}, {len(batch_rows)}, {len(starts)}"
            )
        labels = labels_BT.tolist()
        numbers = row_numbers(labels_BT, ignore_index).tolist()
        rows, truths, images, fallbacks, skipped = [], [], [], 0, 0
        for image, (layout, given, b, start) in enumerate(
            zip(layouts, boxes, batch_rows, starts, strict=True)
        ):
            skipped += len(layout.reasons)
            for index, found in enumerate(layout.objects):
                columns = [start + position for position in found.coord_positions]
                _check_columns(labels[b], columns, vocab, image)
                four_rows = [numbers[b][column - 1] if column else -1 for column in columns]
                if len(columns) != 4 or -1 in four_rows:
                    skipped += 1
                    continue
                decoded = [vocab.grid.dequantize(vocab.id_to_bin(labels[b][column])) for column in columns]
                true_box = given[index] if given is not None and index < len(given) else None
                if true_box is None or not _agree(true_box, decoded, vocab):
                    true_box = decoded
                    fallbacks += 1
                rows.append(four_rows)
                truths.append(list(true_box))
                images.append(image)
        return cls(
            torch.tensor(rows, dtype=torch.long).view(-1, 4),
            torch.tensor(truths, dtype=torch.float32).view(-1, 4),
            torch.tensor(images, dtype=torch.long),
            fallbacks=fallbacks,
            skipped=skipped,
        )


def _check_columns(labels: list[int], columns: list[int], vocab: CoordVocab, sample: int) -> None:
    for column in columns:
        label = labels[column] if 0 <= column < len(labels) else None
        if label is None or (label >= 0 and label not in vocab.ids):
            raise ValueError(
                f"sample {sample}: the layout has a coordinate in column {column}, the label there is {label}; "
                "do batch_rows and starts say where the sample lies in labels_BT, and was it cut off afterwards?"
            )


def _agree(true_box: Box, decoded: list[float], vocab: CoordVocab) -> bool:
    # Rounding moves a coordinate by half a bin, clamping at the far edge by a whole one.
    return len(true_box) == 4 and all(
        abs(true - label) * vocab.grid.scale < 1.5 for true, label in zip(true_box, decoded, strict=True)
    )
