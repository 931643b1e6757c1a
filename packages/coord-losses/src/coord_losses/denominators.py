"""Counts the denominators of the loss terms over all micro-batches and ranks of an optimiser step."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from coord_codec import CoordVocab
from coord_losses.slots import ObjectSlots


def global_denominators(
    batches: Iterable[tuple[Tensor, ObjectSlots | None]],
    vocab: CoordVocab | None,
    reduce: Callable[[Tensor], Tensor] | None = None,
    ignore_index: int = -100,
) -> dict[str, Tensor]:
    """Count the denominators of the loss terms over all micro-batches and ranks of an optimiser step.

    Pass the result to `ObjectiveOutput.total` of each micro-batch, so that the gradients add up to those of one large
    batch. If gradients are averaged over ranks (DDP), multiply the loss by the number of ranks.

    Args:
        batches: labels and objects of every micro-batch of the step on this rank
        vocab: the coordinate tokens, or None
        reduce: function that sums a tensor over the ranks; None uses `torch.distributed` if it is initialised
        ignore_index: the label of positions that are not supervised

    Returns:
        0-d int64 counts under `"tokens"`, `"coord_tokens"` and `"objects"`.

    Example:
        >>> import torch
        >>> from coord_codec import CoordGrid, CoordVocab
        >>> vocab = CoordVocab(first_id=10, grid=CoordGrid(bins=10, scale=10))
        >>> first, second = torch.tensor([[-100, 1, 11, 12]]), torch.tensor([[-100, -100, 3, 19]])
        >>> global_denominators([(first, None), (second, None)], vocab)
        {'tokens': tensor(5), 'coord_tokens': tensor(3), 'objects': tensor(0)}
    """
    total_3 = torch.zeros(3, dtype=torch.long)
    for labels_BT, objects in batches:
        targets_BS = labels_BT[:, 1:]
        supervised_BS = targets_BS != ignore_index
        coord_BS = torch.zeros_like(supervised_BS) if vocab is None else vocab.mask(targets_BS) & supervised_BS
        num_objects = supervised_BS.new_full((), 0 if objects is None else len(objects), dtype=torch.long)
        total_3 = total_3.to(supervised_BS.device) + torch.stack([supervised_BS.sum(), coord_BS.sum(), num_objects])
    if reduce is not None:
        total_3 = reduce(total_3)
    elif torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(total_3)
    return dict(zip(("tokens", "coord_tokens", "objects"), total_3.unbind(), strict=True))
