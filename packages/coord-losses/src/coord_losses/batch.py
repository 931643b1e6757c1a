"""One batch sorted into text rows and coordinate rows.

Shapes: N supervised rows, C of them with a coordinate as target, M objects.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from coord_codec import CoordVocab
from coord_losses.slots import ObjectSlots


@dataclass(frozen=True)
class Batch:
    """Targets and objects, checked and indexed.

    Attributes:
        text_rows: rows whose target is no coordinate, ascending.
        coord_rows_C: rows whose target is a coordinate, ascending.
        bins_C: the true bin of each coordinate row.
        slots_M4: which coordinate rows (0..C-1) decode each object.
        boxes_M4: the true box of each object.
        counts: the batch's own denominators.
    """

    text_rows: Tensor
    coord_rows_C: Tensor
    bins_C: Tensor
    slots_M4: Tensor
    boxes_M4: Tensor
    counts: dict[str, Tensor]

    @classmethod
    def sort(
        cls,
        targets_N: Tensor,
        objects: ObjectSlots | None,
        vocab: CoordVocab | None,
        num_rows: int,
        vocab_size: int,
    ) -> "Batch":
        """Sorts the rows by their target.

        Args:
            targets_N: the token id each row should predict.
            objects: the objects of the batch, or None.
            vocab: the coordinate tokens, or None.
            num_rows: rows of logits or hidden states.
            vocab_size: ids the head covers.

        Raises:
            ValueError: shapes disagree, a target lies outside the vocabulary, or an object names a row that
                does not exist or whose target is no coordinate.
        """
        if targets_N.shape != (num_rows,):
            raise ValueError(f"targets_N must be [{num_rows}], one per row, got {tuple(targets_N.shape)}")
        if num_rows and not 0 <= int(targets_N.min()) <= int(targets_N.max()) < vocab_size:
            raise ValueError(
                f"targets_N must be ids in 0..{vocab_size - 1}, got "
                f"{int(targets_N.min())}..{int(targets_N.max())}; supervised_rows leaves ignored labels out"
            )
        is_coord_N = torch.zeros_like(targets_N, dtype=torch.bool) if vocab is None else vocab.mask(targets_N)
        coord_rows_C = is_coord_N.nonzero()[:, 0]
        if objects is None:
            slots_M4 = coord_rows_C.new_zeros(0, 4)
            boxes_M4 = torch.zeros(0, 4, device=targets_N.device)
        else:
            slots_M4 = _slots(objects.rows_M4.to(targets_N.device), is_coord_N)
            boxes_M4 = objects.boxes_M4.to(targets_N.device)
        sizes = {"tokens": num_rows, "coord_tokens": len(coord_rows_C), "objects": len(slots_M4)}
        return cls(
            text_rows=(~is_coord_N).nonzero()[:, 0],
            coord_rows_C=coord_rows_C,
            bins_C=targets_N[coord_rows_C] - (0 if vocab is None else vocab.first_id),
            slots_M4=slots_M4,
            boxes_M4=boxes_M4,
            counts={key: torch.tensor(size, device=targets_N.device) for key, size in sizes.items()},
        )


def _slots(rows_M4: Tensor, is_coord_N: Tensor) -> Tensor:
    """Translates rows of the batch into places among its coordinate rows."""
    if not rows_M4.numel():
        return rows_M4
    low, high = int(rows_M4.min()), int(rows_M4.max())
    if low < 0 or high >= len(is_coord_N):
        raise ValueError(
            f"objects.rows_M4 names rows {low}..{high}, the batch has {len(is_coord_N)}; "
            "they index the rows that supervised_rows selects"
        )
    if not bool(is_coord_N[rows_M4].all()):
        raise ValueError(
            "objects.rows_M4 names rows whose target is no coordinate token; "
            "were the slots made from the labels of this batch?"
        )
    return (is_coord_N.cumsum(0) - 1)[rows_M4]
