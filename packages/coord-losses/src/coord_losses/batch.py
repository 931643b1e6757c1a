"""Selects the supervised rows of a batch and finds the rows that decode each object.

Shapes: B samples, T positions, N supervised rows, C of them with a coordinate as target, M objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coord_codec import CoordVocab
from coord_losses.slots import ObjectSlots


def supervised_rows(x_BTD: Tensor, labels_BT: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Pair each supervised label with the row that predicts it, one position before.

    Rows are sorted by sample and position. Labels in the first column have no preceding row and are not trained on,
    as in Hugging Face's models.

    Args:
        x_BTD: hidden states or logits, one per position; further dimensions are kept
        labels_BT: token ids, or `ignore_index` at positions that are not supervised
        ignore_index: the label that is left out

    Returns:
        `(x_ND, targets_N)`: the rows and their target token ids.

    Raises:
        ValueError: if batch size or length differ

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
    labels = SupervisedLabels.read(labels_BT, None, None, ignore_index)
    return labels.rows(x_BTD), labels.targets_N


@dataclass(frozen=True)
class SupervisedLabels:
    """The supervised labels of a batch, with all that the CPU has to know of them read from the device at once.

    Read before a model's forward pass, it never waits for that pass.

    Attributes:
        sample_N: the sample of each row
        position_N: the position of each row in its sample
        targets_N: the target token id of each row
        checks: what `Batch.sort` would have to read from the device

    Example:
        >>> import torch
        >>> labels = SupervisedLabels.read(torch.tensor([[-100, -100, 7, 8]]), None, None)
        >>> labels.position_N, labels.targets_N
        (tensor([1, 2]), tensor([7, 8]))
    """

    sample_N: Tensor
    position_N: Tensor
    targets_N: Tensor
    checks: tuple[int, ...]

    @classmethod
    def read(
        cls, labels_BT: Tensor, objects: ObjectSlots | None, vocab: CoordVocab | None, ignore_index: int = -100
    ) -> "SupervisedLabels":
        """Select the labels, with one synchronisation.

        Args:
            labels_BT: token ids, or `ignore_index` at positions that are not supervised
            objects: the objects of the batch, or None
            vocab: the coordinate tokens, or None
            ignore_index: the label that is left out
        """
        targets_F = labels_BT[:, 1:].flatten()
        given_F = targets_F != ignore_index
        # After a stable sort the number of rows suffices; indexing with a mask would wait for the device by itself.
        order_F = (~given_F).int().sort(stable=True).indices
        targets_F, given_F = targets_F[order_F], given_F[order_F]
        rows_P = (ObjectSlots.none() if objects is None else objects).rows_P.to(labels_BT.device)
        num_rows, *checks = _read(targets_F, rows_P, _is_coord(targets_F, vocab), given_F)
        sample_N = order_F[:num_rows] // max(labels_BT.shape[1] - 1, 1)
        position_N = order_F[:num_rows] % max(labels_BT.shape[1] - 1, 1)
        return cls(sample_N, position_N, targets_F[:num_rows], tuple(checks))

    def rows(self, x_BTD: Tensor) -> Tensor:
        """Return the rows [N, D] of hidden states or logits that predict the labels."""
        return x_BTD[self.sample_N.to(x_BTD.device), self.position_N.to(x_BTD.device)]


@dataclass(frozen=True)
class Batch:
    """Validated targets and objects of a batch, with text rows and coordinate rows separated.

    Attributes:
        text_rows: rows whose target is not a coordinate, ascending
        coord_rows_C: rows whose target is a coordinate, ascending
        bins_C: the target bin of each coordinate row
        objects: the objects of the batch, on its device; their rows are coordinate rows, 0..C-1
        counts: the batch's own denominators
    """

    text_rows: Tensor
    coord_rows_C: Tensor
    bins_C: Tensor
    objects: ObjectSlots
    counts: dict[str, Tensor]

    @classmethod
    def sort(
        cls,
        targets_N: Tensor,
        objects: ObjectSlots | None,
        vocab: CoordVocab | None,
        num_rows: int,
        vocab_size: int,
        checks: Sequence[int] | None = None,
    ) -> "Batch":
        """Validate a batch and separate text rows from coordinate rows.

        Args:
            targets_N: the target token id of each row
            objects: the objects of the batch, or None
            vocab: the coordinate tokens, or None
            num_rows: number of rows of logits or hidden states
            vocab_size: number of token ids that the head covers
            checks: those of `SupervisedLabels` for these targets and objects; None reads them from the device

        Raises:
            ValueError: if shapes disagree, a target lies outside the vocabulary, or an object refers to a row that
                does not exist or whose target is not a coordinate
        """
        if targets_N.shape != (num_rows,):
            raise ValueError(f"targets_N must be [{num_rows}], one per row, got {tuple(targets_N.shape)}")
        if targets_N.dtype != torch.long:
            raise ValueError(f"targets_N must be int64 token ids, got {targets_N.dtype}; pass labels.long()")
        is_coord_N = _is_coord(targets_N, vocab)
        objects = (ObjectSlots.none() if objects is None else objects).to(targets_N.device)
        if checks is None:
            _, *checks = _read(targets_N, objects.rows_P, is_coord_N, torch.ones_like(is_coord_N))
        num_coords = _check(checks, num_rows, len(objects.rows_P), vocab_size)
        # Indexing with a mask would wait for the device; after a stable sort the sizes of the parts suffice.
        text_rows, coord_rows_C = is_coord_N.int().sort(stable=True).indices.tensor_split([num_rows - num_coords])
        coord_index_N = is_coord_N.cumsum(0) - 1
        coords = objects.coords
        if coords is not None:
            coords = replace(coords, rows_P=coord_index_N[coords.rows_P])
        objects = replace(objects, rows_M4=coord_index_N[objects.rows_M4], coords=coords)
        sizes = {"tokens": num_rows, "coord_tokens": num_coords, "objects": len(objects)}
        return cls(
            text_rows=text_rows,
            coord_rows_C=coord_rows_C,
            bins_C=targets_N[coord_rows_C] - (0 if vocab is None else vocab.first_id),
            objects=objects,
            counts={key: torch.full((), size, device=targets_N.device) for key, size in sizes.items()},
        )


def _is_coord(targets_N: Tensor, vocab: CoordVocab | None) -> Tensor:
    return torch.zeros_like(targets_N, dtype=torch.bool) if vocab is None else vocab.mask(targets_N)


def _read(targets_N: Tensor, rows_P: Tensor, is_coord_N: Tensor, given_N: Tensor) -> list[int]:
    """Read what the CPU has to know from the device, at once.

    Args:
        targets_N: target token ids
        rows_P: the rows of the objects
        is_coord_N: whether each target is a coordinate
        given_N: whether each target is supervised; those that are stand first

    Returns:
        The number of rows, the lowest and the highest target, the number of coordinates; if there are rows of objects
        also the lowest and the highest of them, and whether the targets of all are coordinates.
    """
    if not len(targets_N):
        return [0, 0, 0, 0]
    most = torch.iinfo(targets_N.dtype).max
    lowest, highest = targets_N.where(given_N, most).min(), targets_N.where(given_N, -1 - most).max()
    checks = [given_N.sum(), lowest, highest, is_coord_N.sum()]
    if len(rows_P):
        checks += [rows_P.min(), rows_P.max(), is_coord_N[rows_P.clamp(0, len(targets_N) - 1)].all()]
    values: list[int] = torch.stack([check.long() for check in checks]).tolist()
    return values


def _check(checks: Sequence[int], num_rows: int, num_slots: int, vocab_size: int) -> int:
    """Validate what was read of targets and rows of objects, and return the number of coordinate rows.

    Raises:
        ValueError: see `Batch.sort`
    """
    if not num_rows:
        if num_slots:
            raise ValueError("objects.rows_M4 names rows, the batch has 0; supervised_rows selects none")
        return 0
    low, high, num_coords, *slots = checks
    if not 0 <= low <= high < vocab_size:
        hint = "supervised_rows leaves ignored labels out" if low < 0 else "was the model's vocabulary expanded?"
        raise ValueError(f"targets_N must be ids in 0..{vocab_size - 1}, got {low}..{high}; {hint}")
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
    return num_coords
