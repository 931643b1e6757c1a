"""The objective from hidden states: every term and every gradient, and never all logits.

The losses need three things of the head (see `LinearHead.read`): cross-entropies, gates, and the logits of
the coordinate tokens. From there on everything is small, and the readable form's own code.

Shapes: N supervised rows, C of them with a coordinate as target, K coordinate tokens, H hidden.
"""

import torch
from torch import Tensor

from coord_losses.batch import Batch
from coord_losses.config import ObjectiveConfig
from coord_losses.linear_head import LinearHead
from coord_losses.output import ObjectiveOutput
from coord_losses.sub_vocabulary import sub_vocabulary_diagnostics, sub_vocabulary_terms
from coord_losses.terms import LossTerm


def fused_objective(
    config: ObjectiveConfig, head: LinearHead, hidden_NH: Tensor, targets_N: Tensor, batch: Batch
) -> ObjectiveOutput:
    """Computes the terms that have a weight; coordinate rows meet the full vocabulary only if one needs it.

    Args:
        config: which terms, with what weights.
        head: reads the hidden states.
        hidden_NH: hidden states of the supervised rows.
        targets_N: the token id each row should predict.
        batch: the same targets, sorted.
    """
    assert head.vocab is not None  # without coordinate tokens the objective has no more than text
    weights = config.weights
    coord_hidden_CH, nothing = hidden_NH[batch.coord_rows_C], hidden_NH[:0]
    # At temperature 1 the gate is cross-entropy over all tokens less that over coordinates.
    gate_from_ce = "gate" in weights and "coord_ce" in weights and config.temperature == 1
    gate_from_head = "gate" in weights and not gate_from_ce
    needs_coord_logits = gate_from_ce or weights.keys() & {"soft_ce", "w1", "box"}
    text: Tensor | slice
    coord: Tensor | slice
    if "text_ce" in weights and "coord_ce" in weights:
        ce_hidden, ce_targets = hidden_NH, targets_N
        text, coord = batch.text_rows, batch.coord_rows_C
    else:
        rows = batch.text_rows if "text_ce" in weights else batch.coord_rows_C
        rows = rows if "text_ce" in weights or "coord_ce" in weights else rows[:0]
        ce_hidden, ce_targets = hidden_NH[rows], targets_N[rows]
        text = coord = slice(None)

    nll, gate_C, coord_logits_CK = head.read(
        ce_hidden,
        ce_targets,
        coord_hidden_CH / config.temperature if gate_from_head else nothing,
        coord_hidden_CH if needs_coord_logits else nothing,
    )
    if gate_from_ce:
        coord_nll_C = torch.nn.functional.cross_entropy(coord_logits_CK, batch.bins_C, reduction="none")
        gate_C = nll[coord] - coord_nll_C
    terms = {
        "text_ce": LossTerm.of(nll[text]),
        "coord_ce": LossTerm.of(nll[coord]),
        "gate": LossTerm.of(gate_C),
        **sub_vocabulary_terms(coord_logits_CK, batch, config, head.vocab.grid),
    }
    known_gates = {config.temperature: gate_C.detach()} if "gate" in weights else {}
    diagnose = _Diagnose(config, head, coord_hidden_CH.detach(), batch.bins_C, known_gates)
    return ObjectiveOutput({name: terms[name] for name in weights}, weights, batch.counts, diagnose)


class _Diagnose:
    """Reads the coordinate rows once more, and through the full vocabulary only for a gate not yet known."""

    def __init__(
        self,
        config: ObjectiveConfig,
        head: LinearHead,
        coord_hidden_CH: Tensor,
        bins_C: Tensor,
        gates: dict[float, Tensor],
    ) -> None:
        self.config, self.head, self.bins_C, self.gates = config, head, bins_C, gates
        self.coord_hidden_CH = coord_hidden_CH

    def __call__(self) -> dict[str, LossTerm]:
        nothing, no_targets = self.coord_hidden_CH[:0], self.bins_C[:0]
        coord_logits_CK = self.head.read(nothing, no_targets, nothing, self.coord_hidden_CH)[2]
        for temperature in {1.0, self.config.temperature} - self.gates.keys():
            scaled_CH = self.coord_hidden_CH / temperature
            self.gates[temperature] = self.head.read(nothing, no_targets, scaled_CH, nothing)[1]
        return {
            **sub_vocabulary_diagnostics(coord_logits_CK, self.bins_C, self.config),
            "gate": LossTerm.of(self.gates[self.config.temperature]),
            "coord_vocab_mass": LossTerm.of(torch.exp(-self.gates[1.0])),
            # Over the full vocabulary it is the gate and cross-entropy among the coordinates.
            "coord_token_ce": LossTerm.of(
                self.gates[1.0]
                + torch.nn.functional.cross_entropy(coord_logits_CK, self.bins_C, reduction="none")
            ),
        }
