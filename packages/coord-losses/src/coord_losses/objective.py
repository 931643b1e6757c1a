"""Computes all loss terms of a batch as sums and counts, from logits (readable form) or hidden states (fused form).

Shapes: N supervised rows, V vocabulary, H hidden, K coordinate tokens, C rows whose target is a coordinate, M objects.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import ParamSpec

import torch
from torch import Tensor

from coord_codec import CoordGrid, CoordVocab
from coord_losses.batch import Batch
from coord_losses.config import ObjectiveConfig
from coord_losses.fused.gather import full_logits, full_weight
from coord_losses.fused.head import LinearHead
from coord_losses.fused.quantities import HiddenQuantities
from coord_losses.inputs import TermInputs, diagnostic_terms, needs_coord_logits, needs_of
from coord_losses.output import ObjectiveOutput
from coord_losses.slots import ObjectSlots
from coord_losses.terms.cross_entropy import token_nll
from coord_losses.terms.expectation import coord_columns, coord_range
from coord_losses.terms.gate import vocab_gate_per_row
from coord_losses.terms.loss_term import LossTerm, at_least_float32
from coord_losses.terms.registry import Need, registered_terms

P = ParamSpec("P")


def _not_compiled(method: Callable[P, ObjectiveOutput]) -> Callable[P, ObjectiveOutput]:
    """Exclude a method from `torch.compile`, importing the compiler (which takes seconds) only while compiling."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> ObjectiveOutput:
        if torch.compiler.is_compiling():
            output: ObjectiveOutput = torch.compiler.disable(method)(*args, **kwargs)
            return output
        return method(*args, **kwargs)

    return call


class CoordObjective:
    """Computes the terms of `registered_terms` that have a weight, for one batch.

    Args:
        config: weights and options of the terms
        vocab: the coordinate tokens; None if there are none, so that all tokens are text

    Raises:
        ValueError: if a coordinate term has a weight but there are no coordinate tokens

    Example:
        >>> import torch
        >>> from coord_codec import CoordGrid, CoordVocab
        >>> objective = CoordObjective(ObjectiveConfig.soft(), CoordVocab(6, CoordGrid(bins=4, scale=4)))
        >>> hidden, weight, targets = torch.ones(3, 2), torch.zeros(10, 2), torch.tensor([1, 7, 9])
        >>> output = objective(hidden @ weight.T, targets)
        >>> {name: (round(term.sum.item(), 3), term.count.item()) for name, term in output.terms.items()}
        {'text_ce': (2.303, 1), 'soft_ce': (2.773, 2), 'w1': (0.183, 2), 'gate': (1.833, 2)}
        >>> torch.equal(output.total(), objective.fused(hidden, weight, targets).total())
        True
    """

    def __init__(self, config: ObjectiveConfig, vocab: CoordVocab | None) -> None:
        terms = registered_terms()
        every_token = {"text_rows", "margin"}
        coord = [name for name in sorted(config.weights) if not every_token.issuperset(terms[name].needs)]
        if vocab is None and coord:
            raise ValueError(f"vocab is None, but {coord[0]} has a weight: it needs coordinate tokens")
        self.config = config
        self.vocab = vocab

    @_not_compiled
    def __call__(
        self,
        logits_NV: Tensor,
        targets_N: Tensor,
        objects: ObjectSlots | None = None,
        *,
        checks: Sequence[int] | None = None,
    ) -> ObjectiveOutput:
        """Compute the terms in the readable form, from the logits of the supervised rows (`supervised_rows`).

        Args:
            logits_NV: logits of shifted rows; bfloat16 and float16 are computed in float32, and a `DTensor` is
                gathered
            targets_N: the target token id of each row; none is ignored
            objects: the objects for the box term; None for no objects
            checks: those of `SupervisedLabels` for these targets and objects; None reads them from the device

        Raises:
            ValueError: if shapes disagree, a target lies outside the vocabulary, the vocabulary does not include
                the coordinate tokens, or the target of an object's row is not a coordinate
        """
        logits_NV = full_logits(logits_NV)
        if logits_NV.dim() != 2:
            raise ValueError(
                f"logits_NV must be [N, V], one row per target, got {list(logits_NV.shape)}; "
                "supervised_rows(logits, labels) selects the rows"
            )
        vocab = self.vocab
        batch = Batch.sort(targets_N, objects, vocab, len(logits_NV), logits_NV.shape[1], checks)
        needs = needs_of(self.config)
        quantities: dict[Need, Tensor] = {}
        if "text_rows" in needs:
            quantities["text_rows"] = token_nll(logits_NV[batch.text_rows], targets_N[batch.text_rows])
        if "margin" in needs:
            wide_NV = at_least_float32(logits_NV)
            quantities["margin"] = wide_NV.gather(1, targets_N[:, None])[:, 0] - wide_NV.mean(dim=1)
        if vocab is None:
            return self._output(quantities, batch, dict)
        coord_targets_C = targets_N[batch.coord_rows_C]
        if needs_coord_logits(needs):
            quantities["coord_logits"] = at_least_float32(coord_columns(logits_NV, vocab)[batch.coord_rows_C])
        if not needs.isdisjoint(("coord_rows", "gate")):
            coord_CV = logits_NV[batch.coord_rows_C]
            if "coord_rows" in needs:
                quantities["coord_rows"] = token_nll(coord_CV, coord_targets_C)
            if "gate" in needs:
                quantities["gate"] = vocab_gate_per_row(coord_CV, vocab.ids, self.config.temperature)

        # Coordinate rows are copied only if diagnostics are requested.
        detached_NV = logits_NV.detach()

        def diagnose() -> dict[str, LossTerm]:
            coord_CV = at_least_float32(detached_NV[batch.coord_rows_C])
            measured: dict[Need, Tensor] = {
                "coord_logits": coord_columns(coord_CV, vocab),
                "gate": vocab_gate_per_row(coord_CV, vocab.ids, self.config.temperature),
                "coord_rows": token_nll(coord_CV, coord_targets_C),
            }
            return diagnostic_terms(TermInputs(self.config, vocab.grid, batch, measured))

        return self._output(quantities, batch, diagnose)

    @_not_compiled
    def fused(
        self,
        hidden_NH: Tensor,
        head_weight_VH: Tensor,
        targets_N: Tensor,
        objects: ObjectSlots | None = None,
        offsets_KH: Tensor | None = None,
        *,
        offset_ids_K: Tensor | Iterable[int] | None = None,
        chunk_rows: int | None = None,
        bias_V: Tensor | None = None,
        logit_scale: float = 1.0,
        softcap: float | None = None,
        denominators: Mapping[str, Tensor | float] | None = None,
        checks: Sequence[int] | None = None,
    ) -> ObjectiveOutput:
        """Compute the same terms from hidden states, with the logits of some rows at a time.

        Terms, totals and gradients equal those of the readable form on `hidden · weightᵀ` (+ offsets). With a frozen
        weight everything is computed in the forward pass and the weight is not needed again; with a trained weight
        (`head_weight_VH.requires_grad`) the backward pass computes the logits a second time. Under autocast the
        matrix products use its dtype. `diagnostics()` applies the head again. Weights that are a `DTensor` (FSDP2) are
        gathered, and their gradient is averaged over the ranks.

        Args:
            hidden_NH: input of the head, rows selected and shifted (see `supervised_rows`)
            head_weight_VH: the head's weight
            targets_N: the target token id of each row; none is ignored
            objects: the objects for the box term; None for no objects
            offsets_KH: offsets added to rows of the weight, trained or not; None for no offsets
            offset_ids_K: the token ids of those rows; None for the coordinate tokens
            chunk_rows: number of rows whose logits exist at a time; None for 64 MiB of logits (256 on a GPU), or as
                many as the head is wide if that is more and the weight is trained
            bias_V: the head's bias, frozen or trained; None for no bias
            logit_scale: factor by which the model multiplies its logits, including the bias (Cohere; Granite divides)
            softcap: cap of the logits, `softcap · tanh(logits / softcap)` (Gemma 2); None for no cap
            denominators: the argument that `total` will get, if it is already known; saves a trained head one of four
                matrix products. Gradients are exact even if `total` gets other values
            checks: those of `SupervisedLabels` for these targets and objects; None reads them from the device

        Raises:
            ValueError: as in the readable form, or if the shapes of the head's parts do not match
        """
        vocab = self.vocab
        weight_VH, bias_V = full_weight(head_weight_VH), full_weight(bias_V)
        if hidden_NH.shape[1:] != weight_VH.shape[1:]:
            raise ValueError(
                f"hidden_NH is {list(hidden_NH.shape)}, head_weight_VH {list(weight_VH.shape)}: "
                "two dimensions each, the last dimension must agree; supervised_rows(hidden, labels) selects the rows"
            )
        coord = slice(0, 0) if vocab is None else coord_range(vocab, len(weight_VH))
        if logit_scale != 1:
            hidden_NH = hidden_NH * logit_scale
            bias_V = None if bias_V is None else bias_V * logit_scale
        head = LinearHead.of(coord, weight_VH, full_weight(offsets_KH), offset_ids_K, chunk_rows, bias_V, softcap)
        batch = Batch.sort(targets_N, objects, vocab, len(hidden_NH), len(weight_VH), checks)
        grid = CoordGrid() if vocab is None else vocab.grid
        inputs = HiddenQuantities(self.config, grid, head, hidden_NH, targets_N, batch)
        quantities = inputs.compute(denominators)
        return self._output(quantities, batch, dict if vocab is None else inputs.diagnose)

    def _output(
        self, quantities: Mapping[Need, Tensor], batch: Batch, diagnose: Callable[[], dict[str, LossTerm]]
    ) -> ObjectiveOutput:
        grid = CoordGrid() if self.vocab is None else self.vocab.grid
        inputs, weights = TermInputs(self.config, grid, batch, quantities), self.config.weights
        terms = {name: inputs.loss_term(registered_terms()[name]) for name in weights}
        return ObjectiveOutput(terms, weights, batch.counts, diagnose)
