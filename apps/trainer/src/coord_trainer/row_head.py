"""The head on supervised rows alone, with the objective inside the wrapped forward.

For one call the active `lm_head` instance gets a `forward` that selects the rows whose next token is
supervised and hands them to the objective. It stays inside `model(**inputs)`, so DDP and DeepSpeed see every
parameter used; the sums leave as `logits`, one column each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from torch.profiler import record_function

from coord_adapter import active_offsets, bypass_head_hook
from coord_losses import CoordObjective, LossTerm, ObjectiveOutput, ObjectSlots, supervised_rows

from .profiling import HEAD

_CAUSAL_LM = {"text_ce": 1.0, "coord_ce": 1.0}


@dataclass
class RowHead:
    """One forward's labels and slots going in, and what it left behind.

    Attributes:
        objective: what is computed.
        labels_BT: labels of the batch as the model sees it.
        slots: its objects.
        want_diagnostics: also look at the coordinate rows, without gradient.
        fused: from hidden states, without the logits of all rows; else the readable form on the logits of all
            positions. Where that is plain cross-entropy (group A) it is added up as Hugging Face's own loss is:
            the same loss and gradients to the last bit.
        rows: how many rows met the head.
        causal_lm: plain cross-entropy of all supervised tokens in one sum [], where it is the whole loss.
    """

    objective: CoordObjective
    labels_BT: torch.Tensor
    slots: ObjectSlots | None
    want_diagnostics: bool
    fused: bool = True
    rows: int = 0
    causal_lm: torch.Tensor | None = None
    output: ObjectiveOutput | None = None
    diagnostics: dict[str, LossTerm] = field(default_factory=dict)

    def run(
        self, model: nn.Module, head: nn.Module, forward: Callable, hidden_BTH: torch.Tensor
    ) -> torch.Tensor:
        """Select rows and apply the objective; returns the term sums [1, terms], and `causal_lm` after them."""
        hidden_NH, targets_N = supervised_rows(hidden_BTH, self.labels_BT)
        self.rows = len(targets_N) if self.fused else self.labels_BT.numel()
        if not self.fused:
            logits_BTV = self._logits(model, head, forward, hidden_BTH)
            logits_NV, _ = supervised_rows(logits_BTV, self.labels_BT)
            self.output = self.objective(logits_NV, targets_N, self.slots)
        elif _is_plain(head):
            offsets = active_offsets(model)
            added = (
                {"offsets_KH": offsets.offsets, "offset_ids_K": offsets.ids} if offsets is not None else {}
            )
            self.output = self.objective.fused(hidden_NH, head.weight, targets_N, self.slots, **added)
        else:
            self.output = self.objective(self._logits(model, head, forward, hidden_NH), targets_N, self.slots)
        if self.want_diagnostics:
            self.diagnostics = self.output.diagnostics()
        sums = [term.sum for term in self.output.terms.values()]
        if not self.fused and self.output.weights == _CAUSAL_LM:
            targets_BT = nn.functional.pad(self.labels_BT[:, 1:], (0, 1), value=-100)
            self.causal_lm = nn.functional.cross_entropy(
                logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), reduction="sum"
            )
            sums.append(self.causal_lm)
        return torch.stack(sums)[None]

    @staticmethod
    def _logits(model: nn.Module, head: nn.Module, forward: Callable, hidden_H: torch.Tensor) -> torch.Tensor:
        logits_V = forward(hidden_H)
        offsets = (
            active_offsets(model) if _is_plain(head) else None
        )  # else the inner layer's hook has added them
        if offsets is None:
            return logits_V
        added_K = hidden_H.to(offsets.offsets.dtype) @ offsets.offsets.T
        return logits_V.index_add(-1, offsets.ids, added_K.to(logits_V.dtype))

    def rejoin(self, sums_1T: torch.Tensor) -> ObjectiveOutput:
        """The output on the tensor that came back through the wrapper, so that its backward hooks fire."""
        names = self.output.terms
        terms = {name: LossTerm(sums_1T[0, i], names[name].count) for i, name in enumerate(names)}
        if self.causal_lm is not None:
            self.causal_lm = sums_1T[0, -1]
        return replace(self.output, terms=terms)

    def total(
        self, output: ObjectiveOutput, denominators: dict[str, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """`output.total`, in the order of additions that Hugging Face's loss has where it is that loss."""
        if self.causal_lm is None:
            return output.total(denominators)
        counts = output.counts if denominators is None else denominators
        return self.causal_lm / counts["tokens"].clamp(min=1)


def _is_plain(head: nn.Module) -> bool:
    """Whether the head is its weight alone: no LoRA around it, no bias."""
    return not isinstance(head, BaseTunerLayer) and getattr(head, "bias", None) is None


def active_head(model: nn.Module) -> nn.Module:
    """The head that this forward will call, also under PEFT and its `modules_to_save`."""
    head = model.get_output_embeddings()
    chosen = getattr(head, "modules_to_save", None)
    return chosen[head.active_adapters[0]] if chosen is not None else head


@contextmanager
def row_selecting_head(model: nn.Module, rows: RowHead) -> Iterator[RowHead]:
    """Let the head of `model` compute the objective on supervised rows, within this block only."""
    head = active_head(model)
    original, own = head.forward, head.__dict__.get("forward")

    def forward(hidden_BTH: torch.Tensor) -> torch.Tensor:
        with record_function(HEAD):
            return rows.run(model, head, original, hidden_BTH)

    head.forward = forward
    try:
        # The offsets' hook expects logits; a plain head's sums are none, and the offsets are in them already.
        with bypass_head_hook(model) if _is_plain(head) else nullcontext():
            yield rows
    finally:
        if own is None:
            del head.forward
        else:  # somebody (accelerate, say) had set one on the instance already
            head.forward = own
