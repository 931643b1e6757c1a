"""Computes the inputs of the loss terms from hidden states, with the full vocabulary only if a term needs it.

Shapes: N supervised rows, H hidden, C rows whose target is a coordinate, R rows of cross-entropies and gates.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from coord_codec import CoordGrid, CoordVocab
from coord_losses.batch import Batch
from coord_losses.config import ObjectiveConfig
from coord_losses.fused.head import LinearHead
from coord_losses.inputs import TermInputs, diagnostic_terms, needs_coord_logits
from coord_losses.output import ObjectiveOutput
from coord_losses.terms.loss_term import LossTerm
from coord_losses.terms.registry import Need, registered_terms


def of_all_rows(
    needs: set[Need], head: LinearHead, hidden_NH: Tensor, targets_N: Tensor, nll_N: Tensor
) -> dict[Need, Tensor]:
    """Compute the inputs of z-loss and label smoothing for all rows; for z-loss `nll_N` must contain all rows."""
    if needs.isdisjoint(("log_z", "margin")):
        return {}
    target_logits_N = head.target_logits(hidden_NH, targets_N)
    results: dict[Need, Tensor] = {}
    if "log_z" in needs:
        results["log_z"] = nll_N + target_logits_N
    if "margin" in needs:
        results["margin"] = target_logits_N - head.mean_logits(hidden_NH)
    return results


def _factors(
    config: ObjectiveConfig,
    grid: CoordGrid,
    batch: Batch,
    split_nlls: Callable[[Tensor, Tensor], dict[Need, Tensor]],
    like: Tensor,
    sizes: tuple[int, int],
    denominators: Mapping[str, Tensor | float],
) -> Tensor | None:
    """Return the gradients of the total loss by nlls and gates if all terms are linear in them; else None."""
    terms = registered_terms()
    used = {n for n in config.weights if not {"text_rows", "coord_rows", "gate", "log_z"}.isdisjoint(terms[n].needs)}
    if not used or not used <= {"text_ce", "coord_ce", "gate"}:
        return None
    wide = torch.promote_types(like.dtype, torch.float32)
    with torch.enable_grad():
        nlls = [like.new_zeros(size, dtype=wide, requires_grad=True) for size in sizes]
        margin_N = like.new_zeros(len(batch.text_rows) + len(batch.bins_C), dtype=wide)
        inputs = TermInputs(config, grid, batch, {**split_nlls(*nlls), "margin": margin_N})
        loss_terms = {name: inputs.loss_term(terms[name]) for name in used}
        total = ObjectiveOutput(loss_terms, config.weights, batch.counts, dict).total(denominators)
        factors_R = torch.cat(torch.autograd.grad(total, nlls, allow_unused=True, materialize_grads=True))
    # Below 6e-8 half precision underflows: the backward pass determines the common factor.
    return factors_R / factors_R.max() if like.dtype == torch.float16 and len(factors_R) else factors_R


def from_hidden(
    needs: set[Need],
    config: ObjectiveConfig,
    vocab: CoordVocab,
    head: LinearHead,
    hidden_NH: Tensor,
    targets_N: Tensor,
    batch: Batch,
    denominators: Mapping[str, Tensor | float] | None,
) -> tuple[dict[Need, Tensor], Batch, Callable[[], dict[str, LossTerm]]]:
    """Return the inputs of the loss terms; logits of the full vocabulary are computed only for rows that need them."""
    empty = hidden_NH[:0]
    coord_hidden_CH = hidden_NH[batch.coord_rows_C]
    # At temperature 1 the gate is the cross-entropy over all tokens minus that over the coordinate tokens.
    gate_from_ce = "gate" in needs and "coord_rows" in needs and config.temperature == 1
    gate_from_head = "gate" in needs and not gate_from_ce
    needs_logits = gate_from_ce or needs_coord_logits(needs)
    text: Tensor | slice
    coord_rows: Tensor | slice
    if "log_z" in needs or {"text_rows", "coord_rows"} <= needs:
        ce_hidden, ce_targets = hidden_NH, targets_N
        text, coord_rows = batch.text_rows, batch.coord_rows_C
    else:
        rows = batch.text_rows if "text_rows" in needs else batch.coord_rows_C
        rows = rows if "text_rows" in needs or "coord_rows" in needs else rows[:0]
        ce_hidden, ce_targets = hidden_NH[rows], targets_N[rows]
        text = coord_rows = slice(None)

    def split_nlls(nll: Tensor, gate_G: Tensor) -> dict[Need, Tensor]:
        gate_C = nll[coord_rows] - coord_nll_C if gate_from_ce else gate_G
        return {"text_rows": nll[text], "coord_rows": nll[coord_rows], "gate": gate_C}

    coord_nll_C: Tensor | int = 0
    gate_hidden = coord_hidden_CH if gate_from_head else empty
    factors_R = None
    if denominators is not None and head.trained:
        sizes = len(ce_hidden), len(gate_hidden)
        factors_R = _factors(config, vocab.grid, batch, split_nlls, hidden_NH, sizes, denominators)
    nll, gate_C, coord_logits_CK = head.apply(
        ce_hidden, ce_targets, gate_hidden, coord_hidden_CH if needs_logits else empty, config.temperature, factors_R
    )
    if gate_from_ce:
        coord_nll_C = torch.nn.functional.cross_entropy(coord_logits_CK, batch.bins_C, reduction="none")
    split = split_nlls(nll, gate_C)
    results: dict[Need, Tensor] = {
        **split,
        "coord_logits": coord_logits_CK,
        **of_all_rows(needs, head, hidden_NH, targets_N, nll),
    }
    kept = {*needs, "coord_logits"} if needs_logits else needs
    quantities = {need: x for need, x in results.items() if need in kept}
    detached_CH = coord_hidden_CH.detach()
    gates = {config.temperature: split["gate"].detach()} if "gate" in needs else {}

    def diagnose() -> dict[str, LossTerm]:
        empty, no_targets = detached_CH[:0], batch.bins_C[:0]
        coord_logits_CK = head.apply(empty, no_targets, empty, detached_CH)[2]
        for temperature in {1.0, config.temperature} - gates.keys():
            gates[temperature] = head.apply(empty, no_targets, detached_CH, empty, temperature)[1]
        coord_nll_C = torch.nn.functional.cross_entropy(coord_logits_CK, batch.bins_C, reduction="none")
        results: dict[Need, Tensor] = {
            "coord_logits": coord_logits_CK,
            "gate": gates[config.temperature],
            "coord_rows": gates[1.0] + coord_nll_C,
        }
        return diagnostic_terms(TermInputs(config, vocab.grid, batch, results), torch.exp(-gates[1.0]))

    return quantities, batch, diagnose
