"""Applies a model's head to supervised rows only: the objective of one forward pass, and the replacement of the head.

Shapes: B samples, T tokens, N supervised rows, H hidden, V vocabulary, L loss terms.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from coord_losses.batch import SupervisedLabels
from coord_losses.objective import CoordObjective
from coord_losses.output import ObjectiveOutput
from coord_losses.slots import ObjectSlots
from coord_losses.terms.loss_term import LossTerm

Denominators = Mapping[str, Tensor | float] | None
_CAUSAL_LM = {"text_ce": 1.0, "coord_ce": 1.0}
_NOT_CALLED = "the model did not call its output embeddings; it cannot be patched"


@dataclass
class RowHead:
    """The objective of one forward pass, computed inside the model's head.

    A function in place of the head's forward pass (`replaced_forward`) calls `take` and one of `fuse`, `read` and
    `read_positions`. If it stands outside a wrapped model, it returns `sums` as the logits, so that DDP and DeepSpeed
    see every parameter used, and `rejoin` continues from what the wrapped model returns.

    Attributes:
        objective: the loss to compute
        labels_BT: labels of the batch, as the model receives them
        objects: objects of the batch
        want_diagnostics: whether to compute the diagnostics of coordinate rows, without gradient
        fused: whether to compute the loss from hidden states (`fuse`), without the logits of all rows
        idle: parameters that this batch does not use. Their gradient is set to 0, so that all ranks have one, and the
            optimizer treats them alike however the global batch is split
        denominators: of the step's loss, if known in advance: a trained head then computes its logits once
        rows: number of rows that the head was applied to
        causal_lm: plain cross-entropy of all supervised tokens in one sum [], if it is the complete loss and was
            computed from all positions
        labels: the supervised labels, read from their device when the pass begins and not again
        targets_N: target token id of each supervised row; None until the head is called
        output: the result; None until it is computed
        diagnostics: of `output`, if wanted

    Example:
        >>> from coord_codec import CoordGrid, CoordVocab
        >>> from coord_losses import ObjectiveConfig
        >>> objective = CoordObjective(ObjectiveConfig.soft(), CoordVocab(10, CoordGrid(bins=10, scale=10)))
        >>> rows = RowHead(objective, torch.tensor([[-100, 1, 12, 13]]))
        >>> hidden_NH = rows.take(torch.ones(1, 4, 8))
        >>> rows.fuse(hidden_NH, torch.ones(20, 8)).counts["coord_tokens"]
        tensor(2)
    """

    objective: CoordObjective
    labels_BT: Tensor
    objects: ObjectSlots | None = None
    want_diagnostics: bool = False
    fused: bool = True
    idle: Sequence[nn.Parameter] = ()
    denominators: Denominators = None
    rows: int = 0
    causal_lm: Tensor | None = None
    targets_N: Tensor | None = None
    output: ObjectiveOutput | None = None
    diagnostics: dict[str, LossTerm] = field(default_factory=dict)
    labels: SupervisedLabels = field(init=False)

    def __post_init__(self) -> None:
        self.labels = SupervisedLabels.read(self.labels_BT, self.objects, self.objective.vocab)

    def take(self, x_BTD: Tensor) -> Tensor:
        """Return the supervised rows [N, D] of hidden states or logits, and note their targets."""
        if x_BTD.shape[:2] != self.labels_BT.shape:
            raise ValueError(
                f"the head gets {tuple(x_BTD.shape)} and labels_BT is {tuple(self.labels_BT.shape)}: "
                "the first two dimensions must agree"
            )
        x_ND, self.targets_N = self.labels.rows(x_BTD), self.labels.targets_N.to(x_BTD.device)
        self.rows = len(x_ND)
        return x_ND

    def fuse(self, hidden_NH: Tensor, weight_VH: Tensor, **parts: Any) -> ObjectiveOutput:
        """Compute the objective from hidden states of the rows taken.

        Args:
            hidden_NH: result of `take`
            weight_VH: the head's weight
            parts: further arguments of `CoordObjective.fused`: offsets, bias, scale, cap
        """
        parts |= {"denominators": self.denominators, "checks": self.labels.checks}
        return self._keep(self.objective.fused(hidden_NH, weight_VH, self._taken(), self.objects, **parts))

    def read(self, logits_NV: Tensor) -> ObjectiveOutput:
        """Compute the objective from the logits of the rows taken."""
        return self._keep(self.objective(logits_NV, self._taken(), self.objects, checks=self.labels.checks))

    def read_positions(self, logits_BTV: Tensor) -> ObjectiveOutput:
        """Compute the objective from the logits of all positions.

        If it is plain cross-entropy (group A), it is also summed as Hugging Face's loss is (`causal_lm`): loss and
        gradients are then the same to the last bit.
        """
        output = self.read(self.take(logits_BTV))
        self.rows = self.labels_BT.numel()
        if output.weights == _CAUSAL_LM:
            targets_BT = nn.functional.pad(self.labels_BT[:, 1:], (0, 1), value=-100)
            self.causal_lm = nn.functional.cross_entropy(
                logits_BTV.flatten(0, 1).float(),
                targets_BT.flatten(),
                reduction="sum",
                label_smoothing=self.objective.config.label_smoothing,
            )
        return output

    def sums(self) -> Tensor:
        """Return the sums of the terms [1, L], followed by `causal_lm` if there is one."""
        sums = [term.sum for term in self.result().terms.values()]
        if self.causal_lm is not None:
            sums.append(self.causal_lm)
        return torch.stack(sums)[None] + sum(parameter.sum() * 0 for parameter in self.idle)

    def rejoin(self, sums_1L: Tensor) -> ObjectiveOutput:
        """Return the output with the sums that the wrapped model returned, so that its backward hooks run."""
        output = self.result()
        terms = {name: LossTerm(sums_1L[0, i], term.count) for i, (name, term) in enumerate(output.terms.items())}
        if self.causal_lm is not None:
            self.causal_lm = sums_1L[0, -1]
        return replace(output, terms=terms)

    def total(self, output: ObjectiveOutput) -> Tensor:
        """Return `output.total(denominators)`, summed in the order of Hugging Face's loss if it is that loss."""
        if self.causal_lm is None:
            return output.total(self.denominators)
        counts = output.counts if self.denominators is None else self.denominators
        return self.causal_lm / torch.as_tensor(counts["tokens"]).clamp(min=1)

    def result(self) -> ObjectiveOutput:
        """Return the output.

        Raises:
            ValueError: if the head was not called
        """
        if self.output is None:
            raise ValueError(_NOT_CALLED)
        return self.output

    def _taken(self) -> Tensor:
        if self.targets_N is None:
            raise ValueError(_NOT_CALLED)
        return self.targets_N

    def _keep(self, output: ObjectiveOutput) -> ObjectiveOutput:
        self.output = output
        if self.want_diagnostics:  # here a sharded head still has its weight
            self.diagnostics = output.diagnostics()
        return output


@contextmanager
def replaced_forward(head: nn.Module, forward: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Make a module call `forward` within this context; hooks, of sharded weights for example, still run around it.

    Args:
        head: the module
        forward: called with the module's input

    Yields:
        The module's own forward pass.

    Example:
        >>> import torch
        >>> layer = nn.Linear(2, 2)
        >>> with replaced_forward(layer, lambda x: x + 1):
        ...     layer(torch.zeros(1))
        tensor([1.])
        >>> layer(torch.zeros(2)).shape
        torch.Size([2])
    """
    module: Any = head
    own, on_instance = module.forward, module.__dict__.get("forward")
    module.forward = forward
    try:
        yield own
    finally:
        if on_instance is None:
            del module.forward
        else:  # accelerate, for example, sets one on the instance
            module.forward = on_instance
