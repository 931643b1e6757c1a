"""Computes the inputs of the loss terms from hidden states, with the full vocabulary only for rows that need it.

Shapes: N supervised rows, T text rows, C rows whose target is a coordinate, H hidden, K coordinate tokens, R rows whose
cross-entropy the head computes, G rows whose gate it computes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from coord_codec import CoordGrid
from coord_losses.batch import Batch
from coord_losses.config import ObjectiveConfig
from coord_losses.fused.autograd import apply_head
from coord_losses.fused.head import LinearHead
from coord_losses.inputs import TermInputs, diagnostic_terms, needs_coord_logits, needs_of
from coord_losses.output import ObjectiveOutput
from coord_losses.terms.cross_entropy import small_nll
from coord_losses.terms.loss_term import LossTerm
from coord_losses.terms.registry import Need, registered_terms


@dataclass
class HiddenQuantities:
    """The inputs of the loss terms of one batch.

    The cross-entropy of a coordinate token is the gate at temperature 1 plus the cross-entropy among the coordinate
    tokens. Where both gate and cross-entropy are needed, the head computes the gate and the sum is taken: both parts
    are positive, so that all digits of either remain. (The difference of two cross-entropies would lose those of a
    small gate.)

    Args:
        config: weights and options of the terms
        grid: maps bins to coordinates
        head: the head
        hidden_NH: its input
        targets_N: target token ids
        batch: text rows and coordinate rows
    """

    config: ObjectiveConfig
    grid: CoordGrid
    head: LinearHead
    hidden_NH: Tensor
    targets_N: Tensor
    batch: Batch
    _gates: dict[float, Tensor] = field(default_factory=dict)
    """Gates by temperature, for diagnostics."""

    def __post_init__(self) -> None:
        self._needs = needs_of(self.config)
        needs_coord_ce = "coord_rows" in self._needs
        self._gate_and_ce = needs_coord_ce and "gate" in self._needs and self.config.temperature == 1
        self._text_in_ce = "text_rows" in self._needs
        self._coords_in_ce = needs_coord_ce and not self._gate_and_ce

    def compute(self, denominators: Mapping[str, Tensor | float] | None) -> dict[Need, Tensor]:
        """Apply the head, and return the inputs that the terms with a weight need.

        Args:
            denominators: see `CoordObjective.fused`
        """
        # Select the rows of each part
        none, coord_CH = self.hidden_NH[:0], self.hidden_NH[self.batch.coord_rows_C]
        if self._text_in_ce and self._coords_in_ce:
            ce_RH, targets_R = self.hidden_NH, self.targets_N  # all rows, without a copy
        elif self._text_in_ce or self._coords_in_ce:
            rows_R = self.batch.text_rows if self._text_in_ce else self.batch.coord_rows_C
            ce_RH, targets_R = self.hidden_NH[rows_R], self.targets_N[rows_R]
        else:
            ce_RH, targets_R = none, self.targets_N[:0]
        gate_GH = coord_CH if "gate" in self._needs else none
        with_logits = self._gate_and_ce or needs_coord_logits(self._needs)

        # One pass over the logits
        factors_R = None
        if denominators is not None and self.head.trained:
            factors_R = self._known_gradients(len(ce_RH), len(gate_GH), denominators)
        nll_R, gate_G, coord_logits_CK = apply_head(
            self.head, ce_RH, targets_R, gate_GH, coord_CH if with_logits else none, self.config.temperature, factors_R
        )

        # Cross-entropies and gates by kind of row
        among_C = small_nll(coord_logits_CK, self.batch.bins_C) if self._gate_and_ce else None
        found = self._by_kind(nll_R, gate_G, among_C)
        if with_logits:
            found["coord_logits"] = coord_logits_CK
        if "gate" in found:
            self._gates[self.config.temperature] = found["gate"].detach()

        if "margin" in self._needs:
            logits_N = self.head.target_logits(self.hidden_NH, self.targets_N)
            found["margin"] = logits_N - self.head.mean_logits(self.hidden_NH)
        return {need: x for need, x in found.items() if need in self._needs or need == "coord_logits"}

    def diagnose(self) -> dict[str, LossTerm]:
        """Compute the diagnostics; applies the head to the coordinate rows again."""
        coord_CH = self.hidden_NH[self.batch.coord_rows_C].detach()
        none, no_targets = coord_CH[:0], self.batch.bins_C[:0]
        coord_logits_CK = apply_head(self.head, none, no_targets, none, coord_CH)[2]
        for temperature in {1.0, self.config.temperature} - self._gates.keys():
            self._gates[temperature] = apply_head(self.head, none, no_targets, coord_CH, none, temperature)[1]
        quantities: dict[Need, Tensor] = {
            "coord_logits": coord_logits_CK,
            "gate": self._gates[self.config.temperature],
            "coord_rows": self._gates[1.0] + small_nll(coord_logits_CK, self.batch.bins_C),
        }
        return diagnostic_terms(TermInputs(self.config, self.grid, self.batch, quantities))

    def _by_kind(self, nll_R: Tensor, gate_G: Tensor, among_C: Tensor | None) -> dict[Need, Tensor]:
        """Return cross-entropies of text and coordinate tokens, and gates, as far as they have been computed.

        Args:
            nll_R: cross-entropies of the head's rows
            gate_G: gates of the coordinate rows; empty if no term needs them
            among_C: cross-entropies among the coordinate tokens, if those over all tokens are sums
        """
        found: dict[Need, Tensor] = {}
        if self._text_in_ce:
            found["text_rows"] = nll_R[self.batch.text_rows] if self._coords_in_ce else nll_R
        if among_C is not None:
            found["coord_rows"] = gate_G + among_C
        elif self._coords_in_ce:
            found["coord_rows"] = nll_R[self.batch.coord_rows_C] if self._text_in_ce else nll_R
        if "gate" in self._needs:
            found["gate"] = gate_G
        return found

    def _known_gradients(
        self, num_ce: int, num_gates: int, denominators: Mapping[str, Tensor | float]
    ) -> Tensor | None:
        """Return the gradients of the total loss by cross-entropies and gates if all terms are linear in them."""
        terms, full_vocabulary = registered_terms(), {"text_rows", "coord_rows", "gate"}
        used = [terms[name] for name in self.config.weights if not full_vocabulary.isdisjoint(terms[name].needs)]
        if not used or not all(term.linear for term in used):
            return None
        like = self.hidden_NH
        wide = torch.promote_types(like.dtype, torch.float32)
        with torch.enable_grad():
            nll_R, gate_G = (like.new_zeros(size, dtype=wide, requires_grad=True) for size in (num_ce, num_gates))
            among_C = like.new_zeros(num_gates, dtype=wide) if self._gate_and_ce else None
            margin_N = like.new_zeros(len(self.targets_N), dtype=wide)
            quantities: dict[Need, Tensor] = {**self._by_kind(nll_R, gate_G, among_C), "margin": margin_N}
            inputs = TermInputs(self.config, self.grid, self.batch, quantities)
            loss_terms = {term.name: inputs.loss_term(term) for term in used}
            total = ObjectiveOutput(loss_terms, self.config.weights, self.batch.counts, dict).total(denominators)
            gradients = torch.autograd.grad(total, (nll_R, gate_G), allow_unused=True, materialize_grads=True)
            factors_R = torch.cat(gradients)
        # Below 6e-8 half precision underflows: the backward pass determines the common factor.
        return factors_R / factors_R.max() if like.dtype == torch.float16 and len(factors_R) else factors_R
