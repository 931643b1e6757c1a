"""The fused form equals the readable form on hidden · weightᵀ, in values and gradients."""

import pytest
import torch
from fused_problem import EVERYTHING, F64, VOCAB, H, Largest, V, both, by_config, gradients, problem, readable
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, registered_terms
from coord_losses.fused import head, one_pass
from coord_losses.fused.head import LinearHead

TRAINABLE = [term for term in registered_terms().values() if term.trainable]
FIELDS = [term.weight_field for term in TRAINABLE if term.weight_field]
FURTHER = [term.name for term in TRAINABLE if not term.weight_field]  # weighted in `extra_weights`


@st.composite
def cases(draw):
    bins = draw(st.integers(2, 12))
    first = draw(st.integers(0, 9))
    vocab = CoordVocab(first, CoordGrid(bins, draw(st.integers(bins, bins + 1))))
    vocab_size = first + bins + draw(st.integers(0, 7))
    weights = {name: draw(st.sampled_from([0.0, 0.7, 1.0])) for name in FIELDS}
    further = {name: draw(st.sampled_from([0.7, 1.0])) for name in FURTHER if draw(st.booleans())}
    if not any(weights.values()) and not further:
        weights["text_weight"] = 1.0
    return {
        "config": ObjectiveConfig(
            **weights,
            extra_weights=further,
            temperature=draw(st.sampled_from([1.0, 0.6, 2.5])),
            expectation_temperature=draw(st.sampled_from([1.0, 1.7])),
            target_sigma=1.3,
            target_truncate=3,
            alpha_l1=draw(st.sampled_from([0.0, 1.5])),
            beta_giou=0.8,
            label_smoothing=draw(st.sampled_from([0.0, 0.0, 0.2])),
        ),
        "vocab": vocab,
        "vocab_size": vocab_size,
        "text": draw(st.sampled_from([0, 1, 5])),
        "objects": draw(st.sampled_from([0, 1, 3])),
        "chunk_rows": draw(st.sampled_from([1, 2, 3, 5, 100, None])),
        "trained": draw(st.booleans()),
        "hidden_trained": draw(st.booleans()),
        "bias": draw(st.sampled_from(["none", "frozen", "trained"])),
        "logit_scale": draw(st.sampled_from([1.0, 1.0, 0.4])),
        "softcap": draw(st.sampled_from([None, None, 2.0])),
        "offsets": draw(st.sampled_from(["none", "coordinates", "coordinates and markers", "tied"])),
        "seed": draw(st.integers(0, 10**6)),
    }


@settings(max_examples=2 * settings().max_examples)
@given(cases())
def test_fused_values_and_gradients_equal_the_readable_form(case):
    vocab, size = case["vocab"], case["vocab_size"]
    objective = CoordObjective(case["config"], vocab)
    hidden, weight, targets, slots = problem(case["text"], case["objects"], vocab, size, case["seed"])
    weight.requires_grad_(case["trained"])
    rng = torch.Generator().manual_seed(case["seed"] + 1)
    ids = offsets = None
    if case["offsets"] != "none":
        ids = list(vocab.ids)
        if case["offsets"] == "coordinates and markers":
            ids = ids[::-1] + [i for i in (0, size - 1) if i not in vocab.ids]
        offsets = torch.randn(len(ids), H, generator=rng, dtype=F64).requires_grad_()
    bias = None if case["bias"] == "none" else torch.randn(size, generator=rng, dtype=F64)
    if bias is not None:
        bias.requires_grad_(case["bias"] == "trained")
    after = {"bias_V": bias, "logit_scale": case["logit_scale"], "softcap": case["softcap"]}
    hidden.requires_grad_(
        case["hidden_trained"] or not (case["trained"] or offsets is not None or case["bias"] == "trained")
    )
    used = hidden
    if case["offsets"] == "tied":  # the table changes the hidden states as well, as a tied embedding does
        used = hidden + torch.tanh(offsets[torch.arange(len(hidden)) % len(offsets)])

    expected = readable(objective, used, weight, targets, slots, offsets, ids, **after)
    given_ids = None if case["offsets"] in ("none", "coordinates") else ids
    found = objective.fused(
        used, weight, targets, slots, offsets, offset_ids_K=given_ids, chunk_rows=case["chunk_rows"], **after
    )

    close = {"rtol": 1e-10, "atol": 1e-10}
    assert list(found.terms) == list(expected.terms)
    for name, term in expected.terms.items():
        torch.testing.assert_close(found.terms[name].sum, term.sum, **close)
        assert found.terms[name].count == term.count
    torch.testing.assert_close(found.total(), expected.total(), **close)
    assert found.counts == expected.counts

    inputs = (hidden, weight, offsets, bias)
    factors = torch.rand(len(TRAINABLE), generator=rng, dtype=F64).tolist()
    for g, e in zip(gradients(found, inputs, factors), gradients(expected, inputs, factors), strict=True):
        torch.testing.assert_close(g, e, **close)
    diagnostics = found.diagnostics()
    for name, term in expected.diagnostics().items():
        torch.testing.assert_close(diagnostics[name].sum, term.sum, **close)
        assert diagnostics[name].count == term.count
        assert not diagnostics[name].sum.requires_grad


def test_fused_backward_runs_twice_with_different_denominators():
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 4)
    found, expected = both(EVERYTHING, hidden.requires_grad_(), weight, targets, slots)
    for denominators in ({"tokens": 5, "coord_tokens": 100, "objects": 2}, found.counts):
        (g,) = torch.autograd.grad(found.total(denominators), hidden, retain_graph=True)
        (e,) = torch.autograd.grad(expected.total(denominators), hidden, retain_graph=True)
        torch.testing.assert_close(g, e, rtol=1e-10, atol=1e-10)


@by_config
@pytest.mark.parametrize("trained", [False, True])
def test_fused_never_holds_full_logits(config, trained):
    vocab_size = 700
    hidden, weight, targets, slots = problem(30, 6, VOCAB, vocab_size, 5)
    hidden.requires_grad_(), weight.requires_grad_(trained)
    own = weight.untyped_storage().data_ptr()  # views of the weight do not count
    with Largest(lambda x: x.untyped_storage().data_ptr() != own) as seen:
        found = CoordObjective(config, VOCAB).fused(hidden, weight, targets, slots, chunk_rows=4)
        found.total().backward()
        found.diagnostics()
    num_rows = len(targets) + 25  # all rows once, those of coordinates a second time for the gate
    assert seen.elements <= max(4 * vocab_size, num_rows * 40, weight.numel() * trained)


class LogitProducts(TorchDispatchMode):
    """Counts products whose output is a logit per row and token."""

    def __init__(self, rows):
        super().__init__()
        self.shape, self.count = (rows, V), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.count += func.overloadpacket == torch.ops.aten.mm and out.shape == self.shape
        return out


def test_fused_computes_logits_of_a_frozen_head_once():
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 4)
    hidden.requires_grad_()
    with LogitProducts(len(targets)) as seen:
        CoordObjective(ObjectiveConfig.group_a(), VOCAB).fused(hidden, weight, targets, slots).total().backward()
    assert seen.count == 1


class ExpOfBlocks(TorchDispatchMode):
    """Counts exponentials of logits of the whole vocabulary."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket == torch.ops.aten.exp_ and args[0].ndim == 2 and args[0].shape[1] == V
        return func(*args, **(kwargs or {}))


@pytest.mark.drawn(9)
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("trained", [False, True])
def test_smoothed_labels_take_the_bias_of_the_head_into_the_mean(softcap, trained):
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 4)
    hidden, bias = hidden.requires_grad_(), torch.linspace(0.5, 2, V, dtype=F64).requires_grad_(trained)
    objective = CoordObjective(EVERYTHING.model_copy(update={"label_smoothing": 0.2}), VOCAB)
    found = objective.fused(hidden, weight, targets, slots, bias_V=bias, softcap=softcap)
    expected = readable(objective, hidden, weight, targets, slots, bias_V=bias, softcap=softcap)
    used = [hidden, bias] if trained else [hidden]
    for name, term in expected.terms.items():
        torch.testing.assert_close(found.terms[name].sum, term.sum, rtol=1e-10, atol=1e-10)
    for mine, theirs in zip(*(torch.autograd.grad(one.total(), used) for one in (found, expected)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)


@by_config
@pytest.mark.parametrize(("dtype", "softcap"), [(F64, 2.0), (torch.bfloat16, None), (torch.float16, 2.0)])
def test_trained_head_needs_three_products_where_denominators_are_known(config, dtype, softcap, monkeypatch):
    """Exact for the total of those denominators times any factor, and, computed again, for every other total."""
    monkeypatch.setattr(head, "_LOGIT_BYTES", {"cpu": 8 * dtype.itemsize * V})
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 4)
    after = {"bias_V": torch.linspace(-1, 1, V, dtype=F64), "softcap": softcap}
    denominators = {"tokens": 50, "coord_tokens": torch.tensor(40), "objects": 9}
    objective = CoordObjective(config.model_copy(update={"label_smoothing": 0.1}), VOCAB)

    def inputs(dtype):
        return [x.to(dtype, copy=True).requires_grad_() for x in (hidden, weight, after["bias_V"])]

    exact, used = inputs(F64), inputs(dtype)
    expected = readable(objective, *exact[:2], targets, slots, bias_V=exact[2], softcap=softcap)
    close = {"rtol": 1e-10, "atol": 1e-10} if dtype == F64 else {"rtol": 0.05, "atol": 0.05}
    others = {"tokens": 2, "coord_tokens": 1, "objects": 5}
    for divisors, factor in ((denominators, 3.0), (denominators, 1.0), (others, 1.0)):
        found = objective.fused(*used[:2], targets, slots, bias_V=used[2], softcap=softcap, denominators=denominators)
        loss = factor * found.total(divisors)
        with ExpOfBlocks() as seen:
            gradients = torch.autograd.grad(loss, used, retain_graph=True)
        again = torch.autograd.grad(loss, used)
        # Both cross-entropies are divided by all tokens: without the gate there is a common factor.
        assert (seen.count > 0) == (divisors is others and "gate" in config.weights)
        wanted = torch.autograd.grad(factor * expected.total(divisors), exact, retain_graph=True)
        for g, a, e in zip(gradients, again, wanted, strict=True):
            torch.testing.assert_close(g.to(F64), e, **close)
            torch.testing.assert_close(a.to(F64), e, **close)


def test_fused_terms_over_coordinate_tokens_use_their_rows_of_the_weight_alone():
    config = ObjectiveConfig.group_b(text_weight=0.0, soft_ce_weight=1.0, w1_weight=1.0)
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 6)
    weight[:30] = weight[70:] = torch.nan
    found = CoordObjective(config, VOCAB).fused(hidden.requires_grad_(), weight, targets, slots)
    found.total().backward()
    assert torch.isfinite(found.total())
    assert torch.isfinite(hidden.grad).all()


def test_fused_frozen_weight_may_be_released_after_the_forward_pass():
    """As sharded weights are (ZeRO-3, FSDP); only diagnostics then raise an error."""
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 7)
    config = ObjectiveConfig.group_c(gate_weight=1.0)
    expected = both(config, hidden.requires_grad_(), weight, targets, slots)[1]
    passing = weight.clone()
    found = CoordObjective(config, VOCAB).fused(hidden, passing, targets, slots)
    passing.untyped_storage().resize_(0)
    passing.data = torch.empty(0, dtype=F64)
    (g,) = torch.autograd.grad(found.total(), hidden)
    torch.testing.assert_close(g, torch.autograd.grad(expected.total(), hidden)[0], rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="released"):
        found.diagnostics()


@pytest.mark.parametrize("trained", [False, True])
def test_fused_works_under_gradient_checkpointing(trained):
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 8)
    inputs = hidden.requires_grad_(), weight.requires_grad_(trained)
    objective = CoordObjective(EVERYTHING, VOCAB)

    def loss(hidden, weight):
        return objective.fused(hidden.tanh(), weight, targets, slots).total()

    wanted = [x for x in inputs if x.requires_grad]
    found = torch.autograd.grad(checkpoint(loss, *inputs, use_reentrant=False), wanted)
    for g, e in zip(found, torch.autograd.grad(loss(*inputs), wanted), strict=True):
        torch.testing.assert_close(g, e)


@pytest.mark.parametrize("trained", [True, False])
def test_fused_refuses_second_derivatives(trained):
    hidden, weight = torch.randn(3, 4, requires_grad=True), torch.randn(80, 4, requires_grad=trained)
    total = CoordObjective(ObjectiveConfig.soft(), VOCAB).fused(hidden, weight, torch.tensor([1, 22, 25])).total()
    with pytest.raises(RuntimeError, match="leave create_graph out"):
        torch.autograd.grad(total, hidden, create_graph=True)


def test_fused_under_no_grad_computes_values_alone():
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 10)
    with torch.no_grad():
        found, expected = both(EVERYTHING, hidden.requires_grad_(), weight.requires_grad_(), targets, slots)
    assert not found.total().requires_grad
    torch.testing.assert_close(found.total(), expected.total(), rtol=1e-10, atol=1e-10)


def test_fused_errors_name_the_part_that_does_not_fit():
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 11)
    fused = CoordObjective(EVERYTHING, VOCAB).fused
    with pytest.raises(ValueError, match="last dimension"):
        fused(hidden[:, 1:], weight, targets, slots)
    with pytest.raises(ValueError, match="expanded"):
        fused(hidden, weight[:69], targets, slots)
    with pytest.raises(ValueError, match=r"offsets_KH must be \[40, 6\]"):
        fused(hidden, weight, targets, slots, torch.zeros(41, H))
    for ids in ([3, 3], [5, 3, 3], [3, 5, 3]):
        with pytest.raises(ValueError, match="twice"):
            fused(hidden, weight, targets, slots, torch.zeros(len(ids), H), offset_ids_K=ids)
    with pytest.raises(ValueError, match=r"0\.\.89"):
        fused(hidden, weight, targets, slots, torch.zeros(2, H), offset_ids_K=[3, 90])
    with pytest.raises(ValueError, match=r"bias_V must be \[90\]"):
        fused(hidden, weight, targets, slots, bias_V=torch.zeros(89))
    with pytest.raises(ValueError, match="softcap must be positive, got 0"):
        fused(hidden, weight, targets, slots, softcap=0.0)
    with pytest.raises(ValueError, match="chunk_rows"):
        fused(hidden, weight, targets, slots, chunk_rows=0)


def test_ids_of_offsets_are_those_of_the_head_they_are_given_for():
    """One tensor of ids, as a buffer of an adapter: for heads of other sizes, with more and fewer coordinates."""
    listed = [29, 70, 30, 69, 5]
    kept, table = torch.tensor(listed), torch.zeros(len(listed), H)
    for coord, size in (
        (slice(30, 70), V),
        (slice(30, 71), V),
        (slice(30, 69), V),
        (slice(29, 70), V),
        (slice(0, 5), 71),
    ):
        made = LinearHead.of(coord, torch.zeros(size, H), table, kept)
        others = [i for i in range(coord.start, coord.stop) if i not in listed]
        assert (made.ids.tolist(), made.apart.tolist()) == (listed, listed + others)
        which, columns = made.of_coord
        inside = [k for k, i in enumerate(listed) if i in range(coord.start, coord.stop)]
        assert (which.tolist(), columns.tolist()) == (inside, [listed[k] - coord.start for k in inside])
    with pytest.raises(ValueError, match=r"0\.\.69"):
        LinearHead.of(slice(30, 69), torch.zeros(70, H), table, kept)


@pytest.mark.slow
@pytest.mark.parametrize("after", [{}, {"bias": True, "softcap": 1.5}], ids=["plain", "bias and cap"])
@pytest.mark.parametrize(
    ("ids", "temperature"),
    [([*VOCAB.ids, 70], 1.0), ([29, 30, 31], 0.4), ([0], 1.0), ([V - 1, *VOCAB.ids], 0.4)],
    ids=["one behind", "one before", "the first", "the last"],
)
def test_each_part_that_is_trained_alone_has_its_gradient(ids, after, temperature, monkeypatch):
    """Of every part of a head by itself, with one token of offsets beside the coordinates or far from them."""
    if temperature != 1:  # passes over the logits go through two rows at a time
        monkeypatch.setattr(one_pass, "_CACHED_BYTES", 2 * V * F64.itemsize)
    config = EVERYTHING.model_copy(update={"temperature": temperature, "label_smoothing": 0.1})
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 21)
    rng = torch.Generator().manual_seed(2)
    parts = {"hidden": hidden, "weight": weight, "offsets": torch.randn(len(ids), H, generator=rng, dtype=F64)}
    if "bias" in after:
        parts["bias"] = 3 * torch.randn(V, generator=rng, dtype=F64)
    cap, objective = after.get("softcap"), CoordObjective(config, VOCAB)
    for name in parts:
        used = {other: x.clone().requires_grad_(other == name) for other, x in parts.items()}
        rows, bias = (used["hidden"], used["weight"], targets, slots, used["offsets"]), used.get("bias")
        expected = readable(objective, *rows, ids, bias_V=bias, softcap=cap).total()
        (wanted,) = torch.autograd.grad(expected, used[name])
        for denominators, factor in ((None, 1.0), ({"tokens": 21, "coord_tokens": 13, "objects": 3}, 0.5)):
            found = objective.fused(*rows, offset_ids_K=ids, bias_V=bias, softcap=cap, denominators=denominators)
            torch.testing.assert_close(found.total(), expected, rtol=1e-10, atol=1e-10)
            (gradient,) = torch.autograd.grad(factor * found.total(), used[name])
            torch.testing.assert_close(
                gradient, factor * wanted, rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}"
            )
