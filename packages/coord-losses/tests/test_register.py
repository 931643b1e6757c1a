"""Loss terms of one's own: registered once, and known to configuration, both forms, output and diagnostics."""

import pickle
from functools import partial

import pytest
import torch
from one_batch import F64, OBJECTS, TARGETS, VOCAB, H, V
from pydantic import ValidationError

from coord_codec.registry import Registry
from coord_losses import (
    CoordObjective,
    ObjectiveConfig,
    TermError,
    box_loss,
    denominator_of,
    expectation,
    register_term,
    registered_terms,
)
from coord_losses.terms import registry

RNG = torch.Generator().manual_seed(0)
HIDDEN, WEIGHT = torch.randn(12, H, generator=RNG, dtype=F64), torch.randn(V, H, generator=RNG, dtype=F64)


def error(inputs, power=1):
    if power < 0:
        raise ValueError(f"power must not be negative, got {power}")
    return (inputs.expected_C - inputs.true_C).abs() ** power


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    monkeypatch.setattr(registry, "_TERMS", Registry("term", registry._TERMS.items()))
    register_term("error", error, needs="expectation")


def both(config, objects=OBJECTS):
    """The output of each form, and its gradient."""
    for form in ("readable", "fused"):
        hidden = HIDDEN.clone().requires_grad_()
        objective = CoordObjective(config, VOCAB)
        if form == "readable":
            output = objective(hidden @ WEIGHT.T, TARGETS, objects)
        else:
            output = objective.fused(hidden, WEIGHT, TARGETS, objects, chunk_rows=5)
        yield output, torch.autograd.grad(output.total(), hidden, retain_graph=True)[0]


def naive_rows():
    """Of every coordinate row: cross-entropy, gate, coordinate logits; of every text row: cross-entropy."""
    logits = HIDDEN @ WEIGHT.T
    is_coord = torch.tensor([t in VOCAB.ids for t in TARGETS.tolist()])
    nll = -torch.log_softmax(logits, 1)[range(12), TARGETS]
    gate = -torch.softmax(logits, 1)[is_coord, 20:70].sum(1).log()
    return nll[~is_coord], nll[is_coord], gate, logits[is_coord, 20:70]


TERMS_BY_NEED = {
    "text_rows": (lambda x: x.text_nll_T**2, lambda t, c, g, k: (t**2).sum(), 3, "tokens"),
    "coord_rows": (lambda x: x.coord_nll_C**2, lambda t, c, g, k: (c**2).sum(), 9, "coord_tokens"),
    "gate": (lambda x: x.gate_C**2, lambda t, c, g, k: (g**2).sum(), 9, "coord_tokens"),
    "coord_logits": (
        lambda x: x.coord_logits_CK.logsumexp(1) - x.coord_logits_CK.gather(1, x.bins_C[:, None])[:, 0],
        lambda t, c, g, k: (c - g).sum(),
        9,
        "coord_tokens",
    ),
    "expectation": (
        lambda x: (x.expected_C - x.bins_C / 50) ** 2,
        lambda t, c, g, k: (
            (expectation(k, VOCAB.grid) - (TARGETS[TARGETS.ge(20) & TARGETS.lt(70)] - 20) / 50) ** 2
        ).sum(),
        9,
        "coord_tokens",
    ),
    "box": (
        lambda x: (x.predicted_M4 - x.boxes_M4).abs().sum(1),
        lambda t, c, g, k: (
            box_loss(expectation(k, VOCAB.grid)[[0, 1, 2, 3, 4, 5, 6, 7]].view(2, 4), OBJECTS.boxes_M4, beta_giou=0).sum
        ),
        2,
        "objects",
    ),
}


@pytest.mark.parametrize("need", TERMS_BY_NEED)
@pytest.mark.parametrize("beside", ["alone", "beside the soft group"])
def test_registered_term_trains_in_both_forms_and_stands_in_the_output(need, beside):
    function, naive, count, denominator = TERMS_BY_NEED[need]
    register_term("mine", function, needs=need, log_key="custom/mine")
    assert (denominator_of("mine"), registered_terms()["mine"].log_key) == (denominator, "custom/mine")
    if beside == "alone":
        config = ObjectiveConfig(text_weight=0.0, extra_weights={"mine": 0.7})
    else:
        config = ObjectiveConfig.soft(coord_ce_weight=1.0, extra_weights={"mine": 0.7})
    assert config.weights["mine"] == 0.7
    (readable, expected), (fused, found) = both(config)
    value = naive(*naive_rows())
    for output in (readable, fused):
        assert list(output.terms)[-1] == "mine"
        assert output.terms["mine"].count == count
        torch.testing.assert_close(output.terms["mine"].sum, value, rtol=1e-9, atol=1e-12)
        own = 0.7 * value / readable.counts[denominator]
        torch.testing.assert_close(output.weighted()["mine"], own, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert expected.abs().sum() > 0


def test_fused_form_computes_only_what_the_terms_need(monkeypatch):
    register_term("mine", lambda x: x.expected_C, needs="expectation")
    weight = WEIGHT.clone()
    weight[:20] = weight[70:] = torch.nan  # no row of another token is touched
    config = ObjectiveConfig(text_weight=0.0, extra_weights={"mine": 1.0})
    output = CoordObjective(config, VOCAB).fused(HIDDEN, weight, TARGETS, OBJECTS)
    assert torch.isfinite(output.total())


def test_registered_term_may_need_several_things_and_take_options():
    register_term("mixed", lambda x, power=1: x.coord_nll_C**power * x.gate_C, needs=("coord_rows", "gate"))
    config = ObjectiveConfig(extra_weights={"mixed": 1.0}, term_options={"mixed": {"power": 3}})
    _, nll, gate, _ = naive_rows()
    for output, _ in both(config):
        torch.testing.assert_close(output.terms["mixed"].sum, (nll**3 * gate).sum(), rtol=1e-9, atol=1e-12)
    with pytest.raises(ValidationError, match=r"'mixed' does not take \{'powr': 3\}"):
        ObjectiveConfig(term_options={"mixed": {"powr": 3}})


def test_default_weight_and_diagnostic_need_no_configuration():
    register_term("always", lambda x: x.gate_C, needs="gate", default_weight=0.25)
    register_term("seen", lambda x: x.expected_C, needs="expectation", diagnostic=True)
    assert ObjectiveConfig().weights == {"text_ce": 1.0, "always": 0.25}
    assert ObjectiveConfig(extra_weights={"always": 0.0}).weights == {"text_ce": 1.0}
    register_term("of all tokens", lambda x: x.margin_N, needs="margin", diagnostic=True)
    *_, logits = naive_rows()
    for output, _ in both(ObjectiveConfig()):
        assert "seen" not in output.terms
        assert "of all tokens" not in output.diagnostics()
        torch.testing.assert_close(output.diagnostics()["seen"].sum, expectation(logits, VOCAB.grid).sum())


def test_errors_of_terms_name_term_and_remedy():
    with pytest.raises(ValueError, match="term 'gate': there is one of this name"):
        register_term("gate", lambda x: x.gate_C, needs="gate")
    with pytest.raises(ValueError, match=r"needs must be one or several of text_rows, .*'logits'"):
        register_term("mine", lambda x: x, needs="logits")
    with pytest.raises(ValueError, match=r"weight_field must be one of text_weight, .*'mine_weight'; leave it out"):
        register_term("mine", lambda x: x.gate_C, needs="gate", weight_field="mine_weight")
    assert "mine" not in registered_terms()
    with pytest.raises(ValidationError, match="there is no term 'coord_entropy'"):  # it is only measured
        ObjectiveConfig(extra_weights={"coord_entropy": 1.0})
    with pytest.raises(ValueError, match="'counted' is only measured and can have no weight"):
        register_term("counted", lambda x: x.gate_C, needs="gate", trainable=False, default_weight=1.0)
    with pytest.raises(ValueError, match="denominator must be one of tokens"):
        register_term("mine", lambda x: x, needs="box", denominator="images")
    with pytest.raises(ValidationError, match=r"there is no term 'eror' \(did you mean 'error'\?\); the terms"):
        ObjectiveConfig(extra_weights={"eror": 1.0})
    wrong = ObjectiveConfig(extra_weights={"error": 1.0}, term_options={"error": {"power": -1}})
    raised = r"'error' with options \{'power': -1\} raises ValueError: power .* got -1 \(test_register\.py, line"
    with pytest.raises(TermError, match=raised):
        list(both(wrong))
    register_term("number", lambda x: 1.0, needs="box")
    with pytest.raises(TermError, match=r"'number' must return \[2\], one loss per element of 'box', got float"):
        list(both(ObjectiveConfig(extra_weights={"number": 1.0})))
    with pytest.raises(ValidationError, match=r"extra_weights: there is no term 'mine'.*call register_term before"):
        ObjectiveConfig(extra_weights={"mine": 1.0})
    with pytest.raises(ValidationError, match="the weight of 'w1' is the field w1_weight"):
        ObjectiveConfig(extra_weights={"w1": 1.0})
    register_term("scalar", lambda x: x.gate_C.sum(), needs="gate")
    register_term("greedy", lambda x: x.coord_nll_C, needs="gate")
    with pytest.raises(ValueError, match=r"'scalar' must return \[9\], one loss per element of 'gate', got \[\]"):
        list(both(ObjectiveConfig(extra_weights={"scalar": 1.0})))
    for form in (0, 1):
        with pytest.raises(ValueError, match="register it with 'coord_rows' among its needs"):
            outputs = both(ObjectiveConfig(text_weight=0, extra_weights={"greedy": 1.0}))
            CoordObjective(ObjectiveConfig(text_weight=0, extra_weights={"greedy": 1.0}), VOCAB).fused(
                HIDDEN, WEIGHT, TARGETS
            ) if form else next(outputs)
    with pytest.raises(ValueError, match="vocab is None, but error has a weight"):
        CoordObjective(ObjectiveConfig(extra_weights={"error": 1.0}), None)


def documented(inputs, power=1):
    """The gate, raised to a power.

    More about it.
    """
    return inputs.gate_C**power


ROW = {
    "denominator": "tokens", "default_weight": 0.5, "log_key": "mine/log", "diagnostic": True, "loss_key": "mine_loss",
    "linear": True, "title": "my term", "unit": "nats", "formula": "g^n", "source": "a paper",
}  # fmt: skip


def test_row_of_a_term_says_what_was_given_and_else_what_follows_from_it():
    plain = vars(register_term("plain", documented, needs="gate"))
    assert plain == {
        "name": "plain", "function": documented, "needs": ("gate",), "denominator": "coord_tokens",
        "weight_field": None,
        "default_weight": 0.0, "log_key": "plain", "diagnostic": False, "trainable": True, "loss_key": None,
        "linear": False, "title": "plain", "unit": "", "formula": "The gate, raised to a power.", "source": "",
    }  # fmt: skip
    for name, value in ROW.items():
        row = vars(register_term("plain", documented, needs="gate", replace=True, **{name: value}))
        assert row == plain | {name: value}
    for function in (lambda x: x.gate_C, partial(documented, power=2)):
        assert register_term("plain", function, needs="gate", replace=True).formula == ""
    assert register_term("plain", documented, needs="gate", replace=True, formula="").formula == ""
    for needs, element, denominator in (
        ("text_rows", "text token", "tokens"), ("margin", "token", "tokens"),
        ("expectation", "coordinate", "coord_tokens"),
        (["box", "gate"], "object", "objects"), (("gate", "text_rows"), "coordinate", "coord_tokens"),
    ):  # fmt: skip
        row = register_term("plain", documented, needs=needs, replace=True)
        assert (row.element, row.denominator) == (element, denominator)
    for wrong in ((), [], ("gate", "boxes")):
        with pytest.raises(ValueError, match="needs must be one or several of"):
            register_term("plain", documented, needs=wrong, replace=True)
    for wrong in ({"default_weight": 0.1}, {"weight_field": "gate_weight"}):
        with pytest.raises(ValueError, match="only measured"):
            register_term("plain", documented, needs="gate", replace=True, trainable=False, **wrong)


def test_lack_of_memory_is_no_fault_of_a_term():
    """So that whoever looks for the largest batch goes on with a smaller one."""

    def large(inputs):
        raise torch.OutOfMemoryError("too large")

    register_term("large", large, needs="gate")
    with pytest.raises(torch.OutOfMemoryError):
        list(both(ObjectiveConfig(extra_weights={"large": 1.0})))
    for name, wrong in (("column", lambda x: x.gate_C[:, None]), ("less", lambda x: x.gate_C[1:])):
        register_term(name, wrong, needs="gate")
        with pytest.raises(TermError, match=rf"'{name}' must return \[9\]"):
            list(both(ObjectiveConfig(extra_weights={name: 1.0})))


def test_config_with_own_terms_stays_a_frozen_value():
    config = ObjectiveConfig.soft(extra_weights={"error": 2.0}, term_options={"error": {"power": 2}})
    assert ObjectiveConfig.model_validate_json(config.model_dump_json()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(config.model_copy())
    assert config.weights == {"text_ce": 1.0, "soft_ce": 1.0, "w1": 1.0, "gate": 1.0, "error": 2.0}


def test_true_coordinates_are_those_of_the_box_where_there_is_one():
    seen = {}
    register_term("look", lambda x: seen.update(c=x.true_C, bins=x.true_bins_C) or x.expected_C, needs="expectation")
    next(both(ObjectiveConfig(extra_weights={"look": 1.0})))
    expected = [*OBJECTS.boxes_M4.flatten().tolist(), 0.2]  # the last coordinate belongs to no object
    assert seen["c"].tolist() == pytest.approx(expected)
    assert seen["bins"].tolist() == pytest.approx([min(49, 50 * c) for c in expected])
