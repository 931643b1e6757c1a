"""The table of loss terms: every row, built in or a user's, is compared and documented."""

import pytest
import torch
from one_batch import F64, OBJECTS, TARGETS, VOCAB, H, V

from coord_codec.registry import Registry
from coord_losses import CoordObjective, ObjectiveConfig, register_term, registered_terms
from coord_losses.batch import Batch
from coord_losses.inputs import TermInputs
from coord_losses.terms import registry
from coord_losses.terms.weights import TermWeights

TERMS = dict(registered_terms())  # before the examples of other tests register their own


def weighted(names, **options):
    """A configuration in which exactly these terms have a weight."""
    weights = dict.fromkeys(TermWeights.model_fields, 0.0)
    extra = {term.name: 0.0 for term in TERMS.values() if term.default_weight}
    for i, name in enumerate(names):
        field = TERMS[name].weight_field
        (weights if field else extra)[field or name] = 0.5 + 0.1 * i
    return ObjectiveConfig(**weights, extra_weights=extra, **options)


def outputs(config, trained, denominators=None):
    """The output of each form, and its gradients by hidden states and weight."""
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(rows, H, generator=generator, dtype=F64) for rows in (len(TARGETS), V))
    hidden, weight = (x.requires_grad_() for x in drawn)
    objective = CoordObjective(config, VOCAB)
    used = weight if trained else weight.detach()
    for output in (
        objective(hidden @ used.T, TARGETS, OBJECTS),
        objective.fused(hidden, used, TARGETS, OBJECTS, chunk_rows=5, denominators=denominators),
    ):
        wanted = (hidden, weight) if trained else (hidden,)
        yield output, torch.autograd.grad(output.total(denominators), wanted, retain_graph=True)


def assert_same_in_both_forms(name, beside, trained, **options):
    denominators = {"tokens": 40, "coord_tokens": 30, "objects": 8}
    config = weighted(dict.fromkeys((*beside, name)), **options)
    (readable, expected), (fused, found) = outputs(config, trained, denominators)
    torch.testing.assert_close(fused.terms[name], readable.terms[name], rtol=1e-11, atol=1e-13)
    for g, e in zip(found, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-13)
    assert any(e.any() for e in expected)


TRAINABLE = [name for name, term in TERMS.items() if term.trainable]
OPTIONS = {"default": {}, "warm": {"temperature": 1.7}, "smoothed": {"label_smoothing": 0.2}}


@pytest.mark.parametrize("name", TRAINABLE)
@pytest.mark.parametrize("trained", [False, True], ids=["frozen head", "trained head"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("beside", [(), TRAINABLE], ids=["alone", "beside all others"])
def test_every_term_has_the_same_value_and_gradients_in_both_forms(name, trained, options, beside):
    assert_same_in_both_forms(name, beside, trained, **options)


@pytest.mark.parametrize("name", [name for name, term in TERMS.items() if term.diagnostic])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_diagnostic_is_the_same_in_both_forms_whatever_is_trained(name, options):
    for beside in ((), TRAINABLE):
        (readable, _), (fused, _) = outputs(weighted(beside or ["text_ce"], **options), trained=False)
        torch.testing.assert_close(fused.diagnostics()[name], readable.diagnostics()[name], rtol=1e-11, atol=1e-13)


def test_comparison_finds_a_term_that_differs_between_the_forms(monkeypatch):
    monkeypatch.setattr(registry, "_TERMS", Registry("term", registry._TERMS.items()))
    monkeypatch.setitem(globals(), "TERMS", registered_terms())
    register_term("same", lambda x: x.gate_C.square(), needs="gate")
    assert_same_in_both_forms("same", (), trained=True)
    calls = []
    register_term("other", lambda x: x.gate_C * (1 + len(calls) + (calls.append(1) or 0)), needs="gate")
    with pytest.raises(AssertionError):
        assert_same_in_both_forms("other", (), trained=True)


@pytest.mark.parametrize("name", [name for name, term in TERMS.items() if term.linear])
def test_rows_marked_linear_are_linear(name):
    batch = Batch.sort(TARGETS, OBJECTS, VOCAB, len(TARGETS), V)
    num_text, num_coords = len(batch.text_rows), len(batch.bins_C)
    counts = {"text_rows": num_text, "coord_rows": num_coords, "gate": num_coords, "margin": len(TARGETS)}
    drawn = [{need: torch.rand(count, dtype=F64) for need, count in counts.items()} for _ in range(2)]
    both = {need: 2 * drawn[0][need] + 3 * drawn[1][need] for need in counts}
    first, second, combined = (
        TermInputs(weighted([name], label_smoothing=0.2), VOCAB.grid, batch, given).loss_term(TERMS[name]).sum
        for given in (*drawn, both)
    )
    torch.testing.assert_close(combined, 2 * first + 3 * second)


def test_every_row_says_how_it_is_shown_and_defined():
    for name, term in TERMS.items():
        assert term.title and term.formula, f"the row of {name} has no title or no formula"
    titles = [term.title for term in TERMS.values()]
    assert len(set(titles)) == len(titles)
    fields = {term.weight_field for term in TERMS.values()} - {None}
    assert fields == set(TermWeights.model_fields), "each field of TermWeights is the weight of a term"
