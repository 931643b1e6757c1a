"""CoordExp: from logits to boxes, differentiably."""

from collections.abc import Sequence

import torch
from torch import Tensor

from coord_codec import CoordVocab
from coord_losses.expectation import expectation


class CoordExp:
    """Reads a box per object as the expectation over the coordinate tokens at its four positions.

    Args:
        vocab: where the coordinate tokens sit in the vocabulary, and what a bin is worth.
        temperature: of the softmax.

    Example:
        ```python
        positions = [[found.logit_positions for found in layout.objects] for layout in layouts]
        boxes = CoordExp(vocab)(logits_BSV, positions)
        ```
    """

    def __init__(self, vocab: CoordVocab, temperature: float = 1.0) -> None:
        self.vocab = vocab
        self.temperature = temperature

    def __call__(
        self, logits_BSV: Tensor, logit_positions: Sequence[Sequence[Sequence[int]] | Tensor]
    ) -> list[Tensor]:
        """Decodes every object.

        Args:
            logits_BSV: logits of the model, unshifted.
            logit_positions: per sample, per object, the 4 positions whose logits predict x1, y1, x2, y2
                (`SequenceLayout.objects[i].logit_positions`).

        Returns:
            One [M_b, 4] tensor of boxes (x1, y1, x2, y2) in [0, 1] per sample; corners are not sorted.

        Raises:
            ValueError: the number of samples differs, an object has not four positions, or the vocabulary
                does not reach the coordinate tokens.
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
                "leave out objects of another arity"
            )
        positions_M4 = torch.as_tensor(positions, dtype=torch.long, device=coord_logits_SK.device).reshape(
            -1, 4
        )
        rows_NK = coord_logits_SK[positions_M4.flatten()]
        return expectation(rows_NK, self.vocab.grid, self.temperature).view(-1, 4)


def coord_columns(logits_V: Tensor, vocab: CoordVocab) -> Tensor:
    """The coordinate tokens' logits [..., K]: a view of the last dimension."""
    return logits_V[..., coord_range(vocab, logits_V.shape[-1])]


def coord_range(vocab: CoordVocab, vocab_size: int) -> slice:
    """Where the coordinate tokens sit among `vocab_size` ids."""
    end = vocab.first_id + vocab.grid.bins
    if vocab_size < end:
        raise ValueError(
            f"the head covers {vocab_size} ids, the coordinate tokens reach to {end - 1}; "
            "was the model's vocabulary expanded?"
        )
    return slice(vocab.first_id, end)
