"""What the terms are computed from, computed from hidden states: the full vocabulary only where a term needs it.

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
    """Compute what z-loss and label smoothing take of every row; for z-loss `nll_N` must be that of all rows."""
    if needs.isdisjoint(("log_z", "margin")):
        return {}
    target_logits_N = head.target_logits(hidden_NH, targets_N)
    found: dict[Need, Tensor] = {}
    if "log_z" in needs:
        found["log_z"] = nll_N + target_logits_N
    if "margin" in needs:
        found["margin"] = target_logits_N - head.mean_logits(hidden_NH)
    return found


def _factors(
    config: ObjectiveConfig,
    grid: CoordGrid,
    batch: Batch,
    of_nlls: Callable[[Tensor, Tensor], dict[Need, Tensor]],
    like: Tensor,
    sizes: tuple[int, int],
    denominators: Mapping[str, Tensor | float],
) -> Tensor | None:
    """Return the gradients of the total by nlls and gates, where the terms are linear in them; else None."""
    terms = registered_terms()
    reading = {n for n in config.weights if not {"text_rows", "coord_rows", "gate", "log_z"}.isdisjoint(terms[n].needs)}
    if not reading or not reading <= {"text_ce", "coord_ce", "gate"}:
        return None
    wide = torch.promote_types(like.dtype, torch.float32)
    with torch.enable_grad():
        nlls = [like.new_zeros(size, dtype=wide, requires_grad=True) for size in sizes]
        given = {**of_nlls(*nlls), "margin": like.new_zeros(len(batch.text_rows) + len(batch.bins_C), dtype=wide)}
        inputs = TermInputs(config, grid, batch, given)
        found = {name: inputs.loss_term(terms[name]) for name in reading}
        total = ObjectiveOutput(found, config.weights, batch.counts, dict).total(denominators)
        factors_R = torch.cat(torch.autograd.grad(total, nlls, allow_unused=True, materialize_grads=True))
    # Half precision ends at 6e-8: the common factor is left to the backward pass.
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
    """Apply the full vocabulary to coordinate rows only where a term needs it; the rest is as in the readable form."""
    nothing = hidden_NH[:0]
    coord_hidden_CH = hidden_NH[batch.coord_rows_C]
    # At temperature 1 the gate is cross-entropy over all tokens less that over the coordinate tokens.
    gate_from_ce = "gate" in needs and "coord_rows" in needs and config.temperature == 1
    gate_from_head = "gate" in needs and not gate_from_ce
    wants_coord_logits = gate_from_ce or needs_coord_logits(needs)
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

    def of_nlls(nll: Tensor, gate_G: Tensor) -> dict[Need, Tensor]:
        gate_C = nll[coord_rows] - coord_nll_C if gate_from_ce else gate_G
        return {"text_rows": nll[text], "coord_rows": nll[coord_rows], "gate": gate_C}

    coord_nll_C: Tensor | int = 0
    gate_hidden = coord_hidden_CH if gate_from_head else nothing
    factors_R = None
    if denominators is not None and head.trained:
        sizes = len(ce_hidden), len(gate_hidden)
        factors_R = _factors(config, vocab.grid, batch, of_nlls, hidden_NH, sizes, denominators)
    nll, gate_C, coord_logits_CK = head.apply(
        ce_hidden,
        ce_targets,
        gate_hidden,
        coord_hidden_CH if wants_coord_logits else nothing,
        config.temperature,
        factors_R,
    )
    if gate_from_ce:
        coord_nll_C = torch.nn.functional.cross_entropy(coord_logits_CK, batch.bins_C, reduction="none")
    from_nlls = of_nlls(nll, gate_C)
    found: dict[Need, Tensor] = {
        **from_nlls,
        "coord_logits": coord_logits_CK,
        **of_all_rows(needs, head, hidden_NH, targets_N, nll),
    }
    wanted = {*needs, "coord_logits"} if wants_coord_logits else needs
    given = {need: x for need, x in found.items() if need in wanted}
    detached_CH = coord_hidden_CH.detach()
    gates = {config.temperature: from_nlls["gate"].detach()} if "gate" in needs else {}

    def diagnose() -> dict[str, LossTerm]:
        nothing, no_targets = detached_CH[:0], batch.bins_C[:0]
        coord_logits_CK = head.apply(nothing, no_targets, nothing, detached_CH)[2]
        for temperature in {1.0, config.temperature} - gates.keys():
            gates[temperature] = head.apply(nothing, no_targets, detached_CH, nothing, temperature)[1]
        coord_nll_C = torch.nn.functional.cross_entropy(coord_logits_CK, batch.bins_C, reduction="none")
        found: dict[Need, Tensor] = {
            "coord_logits": coord_logits_CK,
            "gate": gates[config.temperature],
            "coord_rows": gates[1.0] + coord_nll_C,
        }
        return diagnostic_terms(TermInputs(config, vocab.grid, batch, found), torch.exp(-gates[1.0]))

    return given, batch, diagnose
