"""The supervised rows of a batch: which row predicts which label, and which rows decode which object.

Shapes: B samples, T positions, N supervised rows, C of them with a coordinate as target, M objects.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coord_codec import CoordVocab
from coord_losses.slots import CoordRows, ObjectSlots


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
        coords: of objects that are no boxes: which coordinate rows (0..C-1) decode which coordinate; None for boxes
        said_M: what the text calls each object; None if unknown
        label_M: what each true object is; None if unknown
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
    coords: CoordRows | None = None
    said_M: Tensor | None = None
    label_M: Tensor | None = None

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
        rows_P = objects.rows_M4 if objects.coords is None else objects.coords.rows_P
        num_coords = _check(targets_N, rows_P, is_coord_N, vocab_size)
        # A stable sort: its parts are known by their sizes, where a mask's rows would have to be asked for.
        text_rows, coord_rows_C = is_coord_N.int().sort(stable=True).indices.tensor_split([num_rows - num_coords])
        place_N = is_coord_N.cumsum(0) - 1
        slots_M4, coords = place_N[objects.rows_M4], objects.coords
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
            coords=None if coords is None else replace(coords, rows_P=place_N[coords.rows_P]),
            said_M=objects.said_M,
            label_M=objects.label_M,
        )


def _check(targets_N: Tensor, rows: Tensor, is_coord_N: Tensor, vocab_size: int) -> int:
    """Return the number of coordinate rows; everything is asked of the device at once.

    Raises:
        ValueError: see `Batch.sort`
    """
    num_rows, num_objects = len(targets_N), len(rows)
    if not num_rows:
        if num_objects:
            raise ValueError("objects.rows_M4 names rows, the batch has 0; supervised_rows selects none")
        return 0
    facts = [targets_N.min(), targets_N.max(), is_coord_N.sum()]
    if num_objects:
        facts += [rows.min(), rows.max(), is_coord_N[rows.clamp(0, num_rows - 1)].all()]
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
