"""Row selection: computes head and objective on the supervised rows only, inside the wrapped forward pass.

During one call the active `lm_head` has a `forward` that selects the rows whose next token is supervised and passes
them to the objective. Since this happens inside `model(**inputs)`, DDP and DeepSpeed see every parameter used; the
sums are returned as `logits`, one column each.

Shapes: B samples, T tokens, N supervised rows, H hidden, V vocabulary, K rows with offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.profiler import record_function

from coord_adapter import active_offsets, bypass_head_hook
from coord_losses import CoordObjective, LossTerm, ObjectiveOutput, ObjectSlots, supervised_rows
from coord_losses.hf.head import replaced_forward

HEAD = "coord::head and loss"
"""The profiler's range around head and objective."""
_CAUSAL_LM = {"text_ce": 1.0, "coord_ce": 1.0}


@dataclass(frozen=True)
class Head:
    """The head that a forward pass calls.

    Attributes:
        module: its module.
        is_plain: whether it consists of its weight only, without LoRA and without bias.
    """

    module: nn.Module
    is_plain: bool = True


@dataclass
class RowHead:
    """Inputs of one forward pass besides the model's own, and its results besides the sums.

    Attributes:
        objective: the loss to compute.
        labels_BT: labels of the batch, as the model receives them.
        slots: objects of the batch.
        want_diagnostics: whether to compute the diagnostics of coordinate rows, without gradient.
        fused: whether to compute the loss from hidden states, without the logits of all rows; else it is computed
            from the logits of all positions. If that is plain cross-entropy (group A), it is summed as Hugging Face's
            loss is: loss and gradients are the same to the last bit.
        idle: parameters that this batch does not use. Their gradient is set to 0, so that all ranks have one, and the
            optimizer treats them alike however the global batch is split.
        denominators: of the step's loss, if known in advance: a trained head then computes its logits once.
        rows: number of rows that the head was applied to.
        causal_lm: plain cross-entropy of all supervised tokens in one sum [], if it is the complete loss.
    """

    objective: CoordObjective
    labels_BT: torch.Tensor
    slots: ObjectSlots | None
    want_diagnostics: bool
    fused: bool = True
    idle: Sequence[nn.Parameter] = ()
    denominators: Mapping[str, torch.Tensor] | None = None
    rows: int = 0
    causal_lm: torch.Tensor | None = None
    output: ObjectiveOutput | None = None
    diagnostics: dict[str, LossTerm] = field(default_factory=dict)

    def run(self, model: nn.Module, head: Head, forward: Callable, hidden_BTH: torch.Tensor) -> torch.Tensor:
        """Select rows and apply the objective; returns the sums of the terms [1, terms], followed by `causal_lm`."""
        hidden_NH, targets_N = supervised_rows(hidden_BTH, self.labels_BT)
        self.rows = len(targets_N) if self.fused else self.labels_BT.numel()
        if not self.fused:
            logits_BTV = _logits(model, head, forward, hidden_BTH)
            logits_NV, _ = supervised_rows(logits_BTV, self.labels_BT)
            self.output = self.objective(logits_NV, targets_N, self.slots)
        elif head.is_plain:
            offsets = active_offsets(model)
            added = {"offsets_KH": offsets.offsets, "offset_ids_K": offsets.ids} if offsets is not None else {}
            self.output = self.objective.fused(
                hidden_NH, head.module.weight, targets_N, self.slots, denominators=self.denominators, **added
            )
        else:
            self.output = self.objective(_logits(model, head, forward, hidden_NH), targets_N, self.slots)
        if self.want_diagnostics:
            self.diagnostics = self.output.diagnostics()
        sums = [term.sum for term in self.output.terms.values()]
        if not self.fused and self.output.weights == _CAUSAL_LM:
            targets_BT = nn.functional.pad(self.labels_BT[:, 1:], (0, 1), value=-100)
            self.causal_lm = nn.functional.cross_entropy(
                logits_BTV.flatten(0, 1).float(),
                targets_BT.flatten(),
                reduction="sum",
                label_smoothing=self.objective.config.label_smoothing,
            )
            sums.append(self.causal_lm)
        return torch.stack(sums)[None] + sum(parameter.sum() * 0 for parameter in self.idle)

    def rejoin(self, sums_1T: torch.Tensor) -> ObjectiveOutput:
        """Return the output with the sums that the wrapped model returned, so that its backward hooks run."""
        names = self.output.terms
        terms = {name: LossTerm(sums_1T[0, i], names[name].count) for i, name in enumerate(names)}
        if self.causal_lm is not None:
            self.causal_lm = sums_1T[0, -1]
        return replace(self.output, terms=terms)

    def total(self, output: ObjectiveOutput) -> torch.Tensor:
        """Return `output.total(denominators)`, summed in the order of Hugging Face's loss if it is that loss."""
        if self.causal_lm is None:
            return output.total(self.denominators)
        counts = output.counts if self.denominators is None else self.denominators
        return self.causal_lm / counts["tokens"].clamp(min=1)


def _logits(model: nn.Module, head: Head, forward: Callable, hidden_H: torch.Tensor) -> torch.Tensor:
    logits_V = forward(hidden_H)
    # If the head is not plain, the hook of its inner layer has added the offsets.
    offsets = active_offsets(model) if head.is_plain else None
    if offsets is None:
        return logits_V
    added_K = hidden_H.to(offsets.offsets.dtype) @ offsets.offsets.T
    return logits_V.index_add(-1, offsets.ids, added_K.to(logits_V.dtype))


@contextmanager
def row_selecting_head(model: nn.Module, head: Head, rows: RowHead) -> Iterator[RowHead]:
    """Make the head of `model` compute the objective on supervised rows, within this block only."""
    original = head.module.forward

    def forward(hidden_BTH: torch.Tensor) -> torch.Tensor:
        with record_function(HEAD):
            return rows.run(model, head, original, hidden_BTH)

    # The hook of the offsets expects logits, but a plain head returns sums, which include the offsets already.
    bypassed = bypass_head_hook(model) if head.is_plain else nullcontext()
    with replaced_forward(head.module, forward), bypassed:
        yield rows
