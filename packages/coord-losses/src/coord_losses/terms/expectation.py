"""Expected coordinates and expected boxes: differentiable decoding without argmax."""

from collections.abc import Sequence

import torch
from torch import Tensor

from coord_codec import CoordGrid, CoordVocab
from coord_losses.terms.loss_term import at_least_float32


def expectation(coord_logits_NK: Tensor, grid: CoordGrid = CoordGrid(), temperature: float = 1.0) -> Tensor:
    """Compute `Σ_k p_k · dequantize(k)` with `p = softmax(logits / T)` over the coordinate tokens.

    Args:
        coord_logits_NK: logits of the K coordinate tokens only, in the order of their bins
        grid: maps bins to coordinates; the default grid has 1000 bins of 1/1000
        temperature: T

    Returns:
        Coordinates [N] in [0, dequantize(K - 1)], as fractions of the image side.

    Raises:
        ValueError: if K is not the number of bins of the grid

    Example:
        >>> import torch
        >>> from coord_codec import CoordGrid
        >>> expectation(torch.tensor([[0.0, 0, 0, 0], [0, 0, 99, 0]]), CoordGrid(bins=4, scale=4))
        tensor([0.3750, 0.5000])
    """
    if coord_logits_NK.shape[1] != grid.bins:
        raise ValueError(
            f"coord_logits_NK has {coord_logits_NK.shape[1]} columns, the grid {grid.bins} bins; "
            "pass the coordinate tokens' logits only"
        )
    p_NK = (at_least_float32(coord_logits_NK) / temperature).softmax(dim=1)
    # Like `grid.dequantize`, but without its check of the bins, which would wait for the device.
    coords_K = torch.arange(grid.bins, dtype=p_NK.dtype, device=p_NK.device) / grid.scale
    # Not a matrix product: autocast would round the coordinates to bfloat16.
    return (p_NK * coords_K).sum(dim=1)


class CoordExp:
    """Decode a box per object as the expectation over the coordinate tokens at its four positions.

    Args:
        vocab: the coordinate tokens and their grid
        temperature: softmax temperature

    Example:
        >>> import torch
        >>> from coord_codec import CoordGrid, CoordVocab, find_layout
        >>> vocab = CoordVocab(first_id=3, grid=CoordGrid(bins=10, scale=10))
        >>> layout = find_layout([1, 0, 4, 5, 8, 9, 2], vocab, markers=(1, 2))
        >>> logits = 99 * torch.eye(13)[[0, 4, 5, 8, 9, 2, 0]][None]  # certain of the next token
        >>> CoordExp(vocab)(logits, [[found.logit_positions for found in layout.objects]])
        [tensor([[0.1000, 0.2000, 0.5000, 0.6000]])]
    """

    def __init__(self, vocab: CoordVocab, temperature: float = 1.0) -> None:
        self.vocab = vocab
        self.temperature = temperature

    def __call__(self, logits_BSV: Tensor, logit_positions: Sequence[Sequence[Sequence[int]] | Tensor]) -> list[Tensor]:
        """Decode every object.

        Args:
            logits_BSV: logits of the model, not shifted
            logit_positions: for each sample and object the four positions whose logits predict x1, y1, x2, y2
                (`SequenceLayout.objects[i].logit_positions`)

        Returns:
            One [M_b, 4] tensor of boxes (x1, y1, x2, y2) in [0, 1] per sample; corners are not sorted.

        Raises:
            ValueError: if the number of samples differs, an object does not have four positions, or the vocabulary
                does not include the coordinate tokens
        """
        if len(logit_positions) != logits_BSV.shape[0]:
            raise ValueError(
                f"logit_positions has {len(logit_positions)} samples, the logits have {logits_BSV.shape[0]}"
            )
        coord_logits_BSK = coord_columns(logits_BSV, self.vocab)
        return [
            self._decode(coord_logits_SK, positions)
            for coord_logits_SK, positions in zip(coord_logits_BSK, logit_positions, strict=True)
        ]

    def _decode(self, coord_logits_SK: Tensor, positions: Sequence[Sequence[int]] | Tensor) -> Tensor:
        if any(len(four) != 4 for four in positions):
            raise ValueError(
                f"an object needs four positions, got {[len(four) for four in positions]}; "
                "leave out objects with another number of coordinates"
            )
        positions_P = torch.as_tensor(positions, dtype=torch.long, device=coord_logits_SK.device).flatten()
        return expectation(coord_logits_SK[positions_P], self.vocab.grid, self.temperature).view(-1, 4)


def coord_columns(logits_V: Tensor, vocab: CoordVocab) -> Tensor:
    """Return the logits of the coordinate tokens [..., K] as a view."""
    return logits_V[..., coord_range(vocab, logits_V.shape[-1])]


def coord_range(vocab: CoordVocab, vocab_size: int) -> slice:
    """Return the ids of the coordinate tokens as a slice; raises an error if they exceed the vocabulary."""
    end = vocab.first_id + vocab.grid.bins
    if vocab_size < end:
        raise ValueError(
            f"the head covers {vocab_size} ids, the coordinate tokens reach to {end - 1}; "
            "was the model's vocabulary expanded?"
        )
    return slice(vocab.first_id, end)
