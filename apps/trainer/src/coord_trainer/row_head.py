"""The head on supervised rows alone, with the objective inside the wrapped forward.

For one call the active `lm_head` instance gets a `forward` that selects the rows whose next token is
supervised, runs the real head on those and hands the logits to the objective. It stays inside
`model(**inputs)`, so DDP and DeepSpeed see every parameter used; the term sums leave as `logits` [1, terms].
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from coord_losses import CoordObjective, LossTerm, ObjectiveOutput, ObjectSlots, supervised_rows


@dataclass
class RowHead:
    """What one forward left behind: the objective's output with the sums detached from the wrapper."""

    objective: CoordObjective
    labels_BT: torch.Tensor
    slots: ObjectSlots | None
    want_diagnostics: bool
    rows: int = 0
    output: ObjectiveOutput | None = None
    diagnostics: dict[str, LossTerm] = field(default_factory=dict)

    def run(self, head_forward, hidden_BTH: torch.Tensor) -> torch.Tensor:
        """Select rows, apply the head, keep the output; returns the term sums [1, terms]."""
        hidden_NH, targets_N = supervised_rows(hidden_BTH, self.labels_BT)
        self.rows = len(targets_N)
        self.output = self.objective(head_forward(hidden_NH), targets_N, self.slots)
        if self.want_diagnostics:
            self.diagnostics = self.output.diagnostics()
        return torch.stack([term.sum for term in self.output.terms.values()])[None]

    def rejoin(self, sums_1T: torch.Tensor) -> ObjectiveOutput:
        """The output on the tensor that came back through the wrapper, so that its backward hooks fire."""
        names = self.output.terms
        terms = {name: LossTerm(sums_1T[0, i], names[name].count) for i, name in enumerate(names)}
        return replace(self.output, terms=terms)


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
    head.forward = lambda hidden_BTH: rows.run(original, hidden_BTH)
    try:
        yield rows
    finally:
        if own is None:
            del head.forward
        else:  # somebody (accelerate, say) had set one on the instance already
            head.forward = own
