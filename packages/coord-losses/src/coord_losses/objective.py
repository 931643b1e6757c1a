"""The objective: every term of a batch, undivided, from logits (readable form) or from hidden states (fused form).

Shapes: N supervised rows, V vocabulary, H hidden, K coordinate tokens, C rows whose target is a coordinate, M objects.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Literal, ParamSpec

import torch
from torch import Tensor

from coord_codec import CoordGrid, CoordVocab
from coord_losses.batch import Batch, ObjectSlots
from coord_losses.config import ObjectiveConfig
from coord_losses.fused.head import LinearHead
from coord_losses.inputs import TermInputs, needs_coord_logits
from coord_losses.output import ObjectiveOutput
from coord_losses.terms.cross_entropy import token_nll
from coord_losses.terms.expectation import coord_columns, coord_range
from coord_losses.terms.gate import vocab_gate_per_row
from coord_losses.terms.loss_term import LossTerm, at_least_float32
from coord_losses.terms.registry import Need, registered_terms

P = ParamSpec("P")


def _not_compiled(method: Callable[P, ObjectiveOutput]) -> Callable[P, ObjectiveOutput]:
    """Keep `torch.compile` out of a method; without importing its compiler (seconds) where nothing is compiled."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> ObjectiveOutput:
        if torch.compiler.is_compiling():
            output: ObjectiveOutput = torch.compiler.disable(method)(*args, **kwargs)  # type: ignore[no-untyped-call]
            return output
        return method(*args, **kwargs)

    return call


class CoordObjective:
    """The loss terms of one batch: those of `registered_terms` that have a weight.

    Args:
        config: which terms, with what weights
        vocab: the coordinate tokens; None where there are none, so that all tokens are text

    Raises:
        ValueError: a coordinate term has a weight and there are no coordinate tokens

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
        without = [name for name in sorted(config.weights) if not {"text_rows", "log_z"}.issuperset(terms[name].needs)]
        if vocab is None and without:
            raise ValueError(f"vocab is None, but {without[0]} has a weight: it needs coordinate tokens")
        self.config = config
        self.vocab = vocab

    @_not_compiled
    def __call__(self, logits_NV: Tensor, targets_N: Tensor, objects: ObjectSlots | None = None) -> ObjectiveOutput:
        """Compute the terms in the readable form, from the logits of the supervised rows (`supervised_rows`).

        Args:
            logits_NV: rows, shifted already; bfloat16 and float16 are computed in float32
            targets_N: the token id each row should predict; none is ignored
            objects: the objects whose boxes the box term compares; None for no objects

        Raises:
            ValueError: shapes disagree, a target lies outside the vocabulary, the vocabulary does not include
                the coordinate tokens, or an object's row is not one whose target is a coordinate
        """
        batch, vocab = Batch.sort(targets_N, objects, self.vocab, *logits_NV.shape), self.vocab
        needs = _needs(self.config)
        given: dict[Need, Tensor] = {}
        if "text_rows" in needs:
            given["text_rows"] = token_nll(logits_NV[batch.text_rows], targets_N[batch.text_rows])
        if not needs.isdisjoint(("log_z", "margin")):
            wide_NV = at_least_float32(logits_NV)
            given["log_z"] = wide_NV.logsumexp(dim=1)
            given["margin"] = wide_NV.gather(1, targets_N[:, None])[:, 0] - wide_NV.mean(dim=1)
        if vocab is None:
            return self._output(given, batch, dict)
        coord_targets_C = targets_N[batch.coord_rows_C]
        if needs_coord_logits(needs):
            given["coord_logits"] = at_least_float32(coord_columns(logits_NV, vocab)[batch.coord_rows_C])
        if not needs.isdisjoint(("coord_rows", "gate")):
            coord_CV = logits_NV[batch.coord_rows_C]
            if "coord_rows" in needs:
                given["coord_rows"] = token_nll(coord_CV, coord_targets_C)
            if "gate" in needs:
                given["gate"] = vocab_gate_per_row(coord_CV, vocab.ids, self.config.temperature)

        # The logits themselves: rows are copied only when diagnostics are asked for.
        detached_NV = logits_NV.detach()

        def diagnose() -> dict[str, LossTerm]:
            coord_CV = at_least_float32(detached_NV[batch.coord_rows_C])
            found: dict[Need, Tensor] = {
                "coord_logits": coord_columns(coord_CV, vocab),
                "gate": vocab_gate_per_row(coord_CV, vocab.ids, self.config.temperature),
                "coord_rows": token_nll(coord_CV, coord_targets_C),
            }
            mass_C = coord_columns(coord_CV.softmax(1), vocab).sum(dim=1)
            return _diagnostics(TermInputs(self.config, vocab.grid, batch, found), mass_C)

        return self._output(given, batch, diagnose)

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
        chunk_vocab: int | None = None,
        bias_V: Tensor | None = None,
        logit_scale: float = 1.0,
        softcap: float | None = None,
        denominators: Mapping[str, Tensor | float] | None = None,
        kernel: Literal["torch", "triton"] = "torch",
        gradient_filter: float = 0.0,
    ) -> ObjectiveOutput:
        """Compute the same terms from hidden states, with the logits of one block of the vocabulary at a time.

        Terms, totals and gradients are those of the readable form on `hidden · weightᵀ` (+ offsets). With a
        frozen weight everything is computed in the forward pass and the weight is not needed again; with a
        trained one (`head_weight_VH.requires_grad`) logits are computed a second time in the backward pass.
        Under autocast the products have its dtype. `diagnostics()` applies the head again.

        Args:
            hidden_NH: what the head is applied to, rows selected and shifted (see `supervised_rows`)
            head_weight_VH: the head's weight
            targets_N: the token id each row should predict; none is ignored
            objects: the objects whose boxes the box term compares; None for no objects
            offsets_KH: added to rows of the weight, trained or not; None for no offsets
            offset_ids_K: those rows; None for the coordinate tokens
            chunk_rows: rows that are processed together; None for 4,096 on a CPU, 16,384 on a GPU
            chunk_vocab: tokens whose logits exist at a time; None for 8 MiB of logits (64 on a GPU), but
                at least 1,024 tokens
            bias_V: the head's bias, frozen or trained; None for no bias
            logit_scale: what the model multiplies its logits by, bias included (Cohere; Granite divides)
            softcap: the model's logits are `softcap · tanh(logits / softcap)` (Gemma 2); None for no cap
            denominators: what `total` will be given, where it is known by now: it spares a trained head one product
                of four. Gradients are exact whatever `total` is given
            kernel: "triton" passes over the vocabulary without logits in the device's memory; by atomic additions,
                so that gradients differ in their last digits from run to run. Compiled for GPUs and tested in
                Triton's interpreter, but not run on a GPU yet
            gradient_filter: with "triton", tiles of logits whose gradients all lie below it are left out: a row's
                gradient is then wrong by less than `gradient_filter` times the sum of the weight's rows' norms. 0
                for none

        Raises:
            ValueError: as the readable form, or the head's parts do not fit together
        """
        vocab = self.vocab
        coord = slice(0, 0) if vocab is None else coord_range(vocab, len(head_weight_VH))
        if logit_scale != 1:
            hidden_NH = hidden_NH * logit_scale
            bias_V = None if bias_V is None else bias_V * logit_scale
        head = LinearHead(
            coord,
            head_weight_VH,
            offsets_KH,
            offset_ids_K,
            chunk_rows,
            chunk_vocab,
            bias_V,
            softcap,
            kernel,
            gradient_filter,
        )
        if hidden_NH.shape[1:] != head_weight_VH.shape[1:]:
            raise ValueError(
                f"hidden_NH is {list(hidden_NH.shape)}, head_weight_VH {list(head_weight_VH.shape)}: "
                "the last dimension must agree"
            )
        batch = Batch.sort(targets_N, objects, vocab, len(hidden_NH), len(head_weight_VH))
        needs = _needs(self.config)
        if vocab is None:
            nothing = hidden_NH[:0]
            nll_N = head.apply(hidden_NH, targets_N, nothing, nothing)[0]
            given = {"text_rows": nll_N, **_of_all_rows(needs, head, hidden_NH, targets_N, nll_N)}
            return self._output(given, batch, dict)
        return self._output(*_fused(needs, self.config, vocab, head, hidden_NH, targets_N, batch, denominators))

    def _output(
        self, given: Mapping[Need, Tensor], batch: Batch, diagnose: Callable[[], dict[str, LossTerm]]
    ) -> ObjectiveOutput:
        grid = CoordGrid() if self.vocab is None else self.vocab.grid
        inputs, weights = TermInputs(self.config, grid, batch, given), self.config.weights
        terms = {name: inputs.loss_term(registered_terms()[name]) for name in weights}
        return ObjectiveOutput(terms, weights, batch.counts, diagnose)


def _needs(config: ObjectiveConfig) -> set[Need]:
    needs = {need for name in config.weights for need in registered_terms()[name].needs}
    return needs | {"margin"} if config.label_smoothing and needs & {"text_rows", "coord_rows"} else needs


def _diagnostics(inputs: TermInputs, mass_C: Tensor) -> dict[str, LossTerm]:
    """Return the terms registered as diagnostics, trained or not; entropy and expected error at temperature 1."""
    p_CK = inputs.coord_logits_CK.softmax(dim=1)
    distance_CK = (torch.arange(p_CK.shape[1], device=p_CK.device) - inputs.bins_C[:, None]).abs()
    terms = [t for t in registered_terms().values() if t.diagnostic and "text_rows" not in t.needs]
    return {
        **{term.name: inputs.loss_term(term, weighted=False) for term in terms},
        "coord_vocab_mass": LossTerm.of(mass_C),
        "coord_entropy": LossTerm.of(torch.special.entr(p_CK).sum(dim=1)),
        "coord_error_bins": LossTerm.of((p_CK * distance_CK).sum(dim=1)),
        "coord_token_ce": LossTerm.of(inputs.coord_nll_C),
    }


def _of_all_rows(
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


def _fused(
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
        **_of_all_rows(needs, head, hidden_NH, targets_N, nll),
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
        return _diagnostics(TermInputs(config, vocab.grid, batch, found), torch.exp(-gates[1.0]))

    return given, batch, diagnose
