"""Trains slots along with a model, in the forward pass of its training step (`custom.parallel_boxes`).

Behind the tokens of each row stand the slots of its objects, a block each, with the positions of the tokens from which
the coordinates are predicted. A slot attends to its sample up to the object's first coordinate and to the slots of its
block before it; the tokens never attend to slots, so that their logits and losses are those without them. A slot
learns the model's own distribution of its coordinate, given the true ones before it, which this very pass computes.

Shapes: B rows, T tokens of a row, W slots of a row, L = T + W, M objects, P coordinates of an object, S = P - 1 slots
of an object, N slots of all objects, K coordinate tokens, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from coord_losses import LossTerm, ObjectSlots, soft_cross_entropy, wasserstein1
from coord_losses.batch import SupervisedLabels
from coord_trainer.answers.speed.passes import lengthened

MODULE = "coord_slots"
"""Name of the slots in the model that trains."""
MEASURED = ("slots", "slots_equal")
"""What is logged of slots: their loss, and the share whose likeliest coordinate is the model's."""
RATE = 0.05
"""Learning rate of slots relative to the size of a coordinate's embedding."""


class SlotRows(nn.Module):
    """The embeddings of the slots as a part of a model, which the model's own checkpoints leave out.

    Args:
        rows_SH: the initial rows

    Attributes:
        rows: the parameter [S, H], in float32
    """

    def __init__(self, rows_SH: Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows_SH.detach().float().clone())


def initial_rows(embedded_KH: Tensor, count: int, seed: int) -> Tensor:
    """Return the mean of the coordinates' embeddings for each slot [count, H], with noise that tells them apart."""
    mean_H = embedded_KH.float().mean(dim=0)
    noise_SH = torch.randn(count, len(mean_H), generator=torch.Generator().manual_seed(seed))
    return mean_H + 0.5 * row_size(embedded_KH) * noise_SH.to(mean_H)


def row_size(embedded_KH: Tensor) -> float:
    """Return the root mean square of embeddings."""
    return float(embedded_KH.float().square().mean().sqrt())


def install_slots(model: nn.Module, rows_SH: Tensor) -> SlotRows:
    """Make slots a trained part of a model, with or without PEFT."""
    core = _core(model)
    slots = SlotRows(rows_SH).to(rows_SH.device)
    core.add_module(MODULE, slots)
    core._keys_to_ignore_on_save = {*(core._keys_to_ignore_on_save or ()), f"{MODULE}.rows"}
    return slots


def slots_of(model: nn.Module) -> SlotRows | None:
    """Return the slots of a model that trains them; None if it has none."""
    return getattr(_core(model), MODULE, None)


def _core(model: nn.Module) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]


def attended_by_slots(first_BW: Tensor, end_BW: Tensor, attended_BT: Tensor, count: int) -> Tensor:
    """Return which positions each slot attends to [B, W, T + W]: of the tokens, and of the slots behind them.

    Args:
        first_BW: the first token that each slot attends to
        end_BW: the first one behind those
        attended_BT: false for padding
        count: slots of an object
    """
    token_T = torch.arange(attended_BT.shape[1], device=attended_BT.device)
    seen_BWT = (token_T >= first_BW[..., None]) & (token_T < end_BW[..., None]) & attended_BT[:, None]
    own_W = torch.arange(end_BW.shape[1], device=attended_BT.device)
    same_WW = (own_W[:, None] // count == own_W // count) & (own_W <= own_W[:, None])
    return torch.cat([seen_BWT, same_WW.expand(len(seen_BWT), -1, -1)], dim=2)


def slot_loss(logits_NK: Tensor, targets_NK: Tensor) -> LossTerm:
    """Return the sum over slots of cross-entropy and Wasserstein distance to the distributions they are to answer."""
    cross_entropy, distance = soft_cross_entropy(logits_NK, targets_NK), wasserstein1(logits_NK, targets_NK)
    return LossTerm(cross_entropy.sum + distance.sum, cross_entropy.count)


@dataclass
class Blocks:
    """The slots of a batch's objects.

    Attributes:
        slots: the embeddings
        length: T
        row_M: the row of each object
        at_MP: positions of the tokens from which each coordinate is predicted
        place_MS: positions of the slots behind the tokens, from 0
        token_BW: the token whose position each slot has; 0 for slots that stand for no object
        attended_B1WL: which positions each slot attends to
        measured: the terms of `MEASURED`, once the head was applied
    """

    slots: SlotRows
    length: int
    row_M: Tensor
    at_MP: Tensor
    place_MS: Tensor
    token_BW: Tensor
    attended_B1WL: Tensor
    measured: dict[str, LossTerm] = field(default_factory=dict)

    @classmethod
    def of(cls, slots: SlotRows, inputs: dict[str, Any], labels: SupervisedLabels, objects: ObjectSlots) -> Blocks:
        """Return the blocks of a batch with at least one object.

        Args:
            slots: the embeddings
            inputs: of the model: padded rows, or one packed row with four rows of position ids
            labels: of the batch
            objects: of the batch, on its device
        """
        ids_BT, count = inputs["input_ids"], len(slots.rows)
        rows = objects.rows_M4 if objects.coords is None else objects.coords.rows_P
        rows_MP = rows.view(len(objects), count + 1)
        at_MP, row_M = labels.position_N[rows_MP], labels.sample_N[rows_MP[:, 0]]

        # Objects lie in the order of their rows: each has the place behind those before it in its own.
        of_row_B = torch.bincount(row_M, minlength=len(ids_BT))
        rank_M = torch.arange(len(row_M), device=row_M.device) - (of_row_B.cumsum(0) - of_row_B)[row_M]
        place_MS = rank_M[:, None] * count + torch.arange(count, device=row_M.device)
        shape = len(ids_BT), int(of_row_B.max()) * count
        token_BW, first_BW, end_BW = (torch.zeros(shape, dtype=torch.long, device=row_M.device) for _ in range(3))
        row_M1 = row_M[:, None]
        token_BW[row_M1, place_MS] = at_MP[:, 1:]
        end_BW[row_M1, place_MS] = at_MP[:, :1] + 1
        attended_BT = torch.ones_like(ids_BT, dtype=torch.bool)
        if (mask_BT := inputs.get("attention_mask")) is not None:
            attended_BT = mask_BT.bool()
        elif (positions := inputs.get("position_ids")) is not None and len(positions) == 4:
            first_BW[row_M1, place_MS] = at_MP[:, :1] - positions[0, row_M1, at_MP[:, :1]]  # a sample begins at 0
        attended_BWL = attended_by_slots(first_BW, end_BW, attended_BT, count)
        return cls(slots, ids_BT.shape[1], row_M, at_MP, place_MS, token_BW, attended_BWL[:, None])

    def behind(self, inputs: dict[str, Any], filler: int) -> dict[str, Any]:
        """Return the inputs of a model with the slots behind the tokens.

        Args:
            inputs: without them
            filler: any token that stands for no image
        """
        ids_BT = inputs["input_ids"]
        added_BW = torch.full_like(self.token_BW, filler)
        extended = lengthened(inputs, {"input_ids": added_BW, "attention_mask": torch.ones_like(added_BW)})
        positions = inputs.get("position_ids")
        if positions is None:  # what transformers assumes then
            positions = torch.arange(self.length, device=ids_BT.device).expand(ids_BT.shape)
        index = self.token_BW.expand(*positions.shape[:-1], -1)
        extended["position_ids"] = torch.cat([positions, positions.gather(-1, index)], dim=-1)
        return extended | {"coord_blocks": self}

    @contextmanager
    def embedded(self, model: nn.Module) -> Iterator[None]:
        """Put the slots in place of what the model embeds behind the tokens, within this context."""

        def replace(module: nn.Module, args: Any, embedded_BLH: Tensor) -> Tensor:
            rows_SH = self.slots.rows.to(embedded_BLH)
            blocks = self.token_BW.shape[1] // len(rows_SH)
            rows_BWH = rows_SH.repeat(blocks, 1).expand(len(embedded_BLH), -1, -1)
            return torch.cat([embedded_BLH[:, : self.length], rows_BWH], dim=1)

        hook = model.get_input_embeddings().register_forward_hook(replace)  # type: ignore[operator]
        try:
            yield
        finally:
            hook.remove()

    def loss(self, hidden_BLH: Tensor, coord_logits: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the sum of the loss over all slots [], and keep what is measured.

        Args:
            hidden_BLH: what the head is given
            coord_logits: the head's logits of coordinate tokens [..., K]
        """
        row_M1 = self.row_M[:, None]
        logits_NK = coord_logits(hidden_BLH[row_M1, self.length + self.place_MS].flatten(0, 1)).float()
        with torch.no_grad():
            own_NK = coord_logits(hidden_BLH[row_M1, self.at_MP[:, 1:]].flatten(0, 1)).float()
        term = slot_loss(logits_NK, own_NK.softmax(dim=1))
        equal = (logits_NK.argmax(dim=1) == own_NK.argmax(dim=1)).sum()
        self.measured = dict(zip(MEASURED, (term, LossTerm(equal, term.count)), strict=True))
        return term.sum
