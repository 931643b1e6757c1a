"""The fused objective is the readable one on hidden · weightᵀ, in values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots, gap

F64 = torch.float64
H = 6
TERMS = ("text_weight", "coord_ce_weight", "soft_ce_weight", "w1_weight", "gate_weight", "box_weight")


def problem(text, objects, vocab, vocab_size, seed, dtype=F64):
    """Hidden states, head, targets in random order and slots of a batch."""
    rng = torch.Generator().manual_seed(seed)
    outside = [i for i in range(vocab_size) if i not in vocab.ids]
    coords = torch.randint(vocab.ids[0], vocab.ids[-1] + 1, (4 * objects + 1,), generator=rng)
    coords = coords[: 4 * objects + (objects > 0)]  # one coordinate that belongs to no object
    words = torch.tensor(outside)[torch.randint(0, len(outside), (text,), generator=rng)]
    order = torch.randperm(text + len(coords), generator=rng)
    targets = torch.empty(len(order), dtype=torch.long)
    targets[order] = torch.cat([words, coords])
    slots = ObjectSlots(
        rows_M4=order[text : text + 4 * objects].view(-1, 4),
        boxes_M4=torch.rand(objects, 4, generator=rng, dtype=F64),
        image_M=torch.zeros(objects, dtype=torch.long),
    )
    hidden = torch.randn(len(targets), H, generator=rng, dtype=F64).to(dtype)
    weight = torch.randn(vocab_size, H, generator=rng, dtype=F64).to(dtype)
    return hidden, weight, targets, slots


def readable(objective, hidden, weight, targets, slots, offsets=None, ids=None):
    logits = hidden @ weight.T
    if offsets is not None:
        ids = list(objective.vocab.ids) if ids is None else ids
        logits = logits.index_add(
            1, torch.tensor(ids), (hidden.to(offsets.dtype) @ offsets.T).to(logits.dtype)
        )
    return objective(logits, targets, slots)


def gradients(output, inputs, factors):
    """Of the sum over terms, each with a factor of its own: what the total is, with any denominators."""
    loss = sum(f * t.sum for f, t in zip(factors, output.terms.values(), strict=False))
    return torch.autograd.grad(
        loss, [x for x in inputs if x is not None and x.requires_grad], retain_graph=True
    )


@st.composite
def cases(draw):
    bins = draw(st.integers(2, 12))
    first = draw(st.integers(0, 9))
    vocab = CoordVocab(first, CoordGrid(bins, draw(st.integers(bins, bins + 1))))
    vocab_size = first + bins + draw(st.integers(0 if first else 1, 7))
    weights = {name: draw(st.sampled_from([0.0, 0.7, 1.0])) for name in TERMS}
    if not any(weights.values()):
        weights["text_weight"] = 1.0
    return {
        "config": ObjectiveConfig(
            **weights,
            temperature=draw(st.sampled_from([1.0, 0.6, 2.5])),
            expectation_temperature=draw(st.sampled_from([1.0, 1.7])),
            target_sigma=1.3,
            target_truncate=3,
            alpha_l1=draw(st.sampled_from([0.0, 1.5])),
            beta_giou=0.8,
        ),
        "vocab": vocab,
        "vocab_size": vocab_size,
        "text": draw(st.sampled_from([0, 1, 5])),
        "objects": draw(st.sampled_from([0, 1, 3])),
        "chunk_rows": draw(st.sampled_from([1, 2, 3, 5, 100, None])),
        "trained": draw(st.booleans()),
        "hidden_trained": draw(st.booleans()),
        "offsets": draw(st.sampled_from(["none", "coordinates", "coordinates and markers", "tied"])),
        "seed": draw(st.integers(0, 10**6)),
    }


@settings(max_examples=120, deadline=None)
@given(cases())
def test_values_and_gradients_are_those_of_the_readable_form(case):
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
    hidden.requires_grad_(case["hidden_trained"] or not (case["trained"] or offsets is not None))
    read = hidden
    if case["offsets"] == "tied":  # the table reaches the hidden states as well, as a tied embedding does
        read = hidden + torch.tanh(offsets[torch.arange(len(hidden)) % len(offsets)])

    expected = readable(objective, read, weight, targets, slots, offsets, ids)
    given_ids = None if case["offsets"] in ("none", "coordinates") else ids
    found = objective.fused(
        read, weight, targets, slots, offsets, offset_ids_K=given_ids, chunk_rows=case["chunk_rows"]
    )

    close = {"rtol": 1e-10, "atol": 1e-10}
    assert list(found.terms) == list(expected.terms)
    for name, term in expected.terms.items():
        torch.testing.assert_close(found.terms[name].sum, term.sum, **close)
        assert found.terms[name].count == term.count
    torch.testing.assert_close(found.total(), expected.total(), **close)
    assert found.counts == expected.counts

    inputs = (hidden, weight, offsets)
    factors = torch.rand(6, generator=rng, dtype=F64).tolist()
    for g, e in zip(gradients(found, inputs, factors), gradients(expected, inputs, factors), strict=True):
        torch.testing.assert_close(g, e, **close)
    diagnostics = found.diagnostics()
    for name, term in expected.diagnostics().items():
        torch.testing.assert_close(diagnostics[name].sum, term.sum, **close)
        assert diagnostics[name].count == term.count
        assert not diagnostics[name].sum.requires_grad


VOCAB = CoordVocab(30, CoordGrid(40, 40))
V = 90
EVERYTHING = ObjectiveConfig(
    coord_ce_weight=1.0, soft_ce_weight=1.0, w1_weight=1.0, gate_weight=1.0, box_weight=1.0
)
CONFIGS = {
    "soft": ObjectiveConfig.soft(),
    "soft, warmer": ObjectiveConfig.soft(temperature=2.0),
    "a": ObjectiveConfig.group_a(),
    "b": ObjectiveConfig.group_b(),
    "c": ObjectiveConfig.group_c(),
    "everything": EVERYTHING,
    "everything, colder": EVERYTHING.model_copy(update={"temperature": 0.5}),
}
by_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def both(config, hidden, weight, targets, slots, offsets=None):
    objective = CoordObjective(config, VOCAB)
    found = objective.fused(hidden, weight, targets, slots, offsets, chunk_rows=7)
    return found, readable(objective, hidden, weight, targets, slots, offsets)


@by_config
@pytest.mark.parametrize("trained", [False, True])
def test_float32_agrees_to_rounding(config, trained):
    hidden, weight, targets, slots = problem(20, 6, VOCAB, V, 0, torch.float32)
    inputs = hidden.requires_grad_(), weight.requires_grad_(trained)
    found, expected = both(config, *inputs, targets, slots)
    torch.testing.assert_close(found.total(), expected.total(), rtol=1e-6, atol=1e-6)
    for g, e in zip(gradients(found, inputs, [1.0] * 6), gradients(expected, inputs, [1.0] * 6), strict=True):
        torch.testing.assert_close(g, e, rtol=2e-5, atol=2e-5)


@by_config
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("block_rows", [3, 100])
def test_half_precision_is_as_near_the_truth_as_the_readable_form(
    config, dtype, trained, block_rows, monkeypatch
):
    monkeypatch.setitem(gap._BLOCK_BYTES, "cpu", block_rows * 4 * V)  # of chunks of 7 rows
    hidden, weight, targets, slots = problem(40, 12, VOCAB, V, 1, dtype)
    offsets = 0.1 * torch.randn(40, H, generator=torch.Generator().manual_seed(2))

    def run(form, dtype):
        inputs = [hidden.to(dtype, copy=True), weight.to(dtype, copy=True)]
        inputs.append(offsets.to(torch.promote_types(dtype, torch.float32), copy=True))
        for x, wanted in zip(inputs, (True, trained, True), strict=True):
            x.requires_grad_(wanted)
        output = both(config, *inputs[:2], targets, slots, inputs[2])[form]
        return [output.total(), *torch.autograd.grad(output.total(), [x for x in inputs if x.requires_grad])]

    for found, other, truth in zip(run(0, dtype), run(1, dtype), run(1, F64), strict=True):
        assert found.dtype == other.dtype
        error, usual = (torch.linalg.vector_norm(x.double() - truth) for x in (found, other))
        assert error <= 1.3 * usual + 0.004 * torch.linalg.vector_norm(truth)


@by_config
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(config, trained, dtype):
    hidden, weight, targets, slots = problem(6, 3, VOCAB, V, 3, dtype)
    hidden = (hidden.sign() * 1e2).requires_grad_()
    weight = (weight.sign() * 1e2 / H).requires_grad_(trained)  # logits of up to 1e4
    found, expected = both(config, hidden, weight, targets, slots)
    torch.testing.assert_close(
        found.total(), expected.total(), rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-2
    )
    found.total().backward()
    assert torch.isfinite(hidden.grad).all()


def test_an_upstream_gradient_may_come_twice_and_differ():
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 4)
    found, expected = both(EVERYTHING, hidden.requires_grad_(), weight, targets, slots)
    for denominators in ({"tokens": 5, "coord_tokens": 100, "objects": 2}, found.counts):
        (g,) = torch.autograd.grad(found.total(denominators), hidden, retain_graph=True)
        (e,) = torch.autograd.grad(expected.total(denominators), hidden, retain_graph=True)
        torch.testing.assert_close(g, e, rtol=1e-10, atol=1e-10)


class BiggestTensor(TorchDispatchMode):
    """Remembers the most elements that any operation put out, views of the weight apart."""

    def __init__(self, weight):
        super().__init__()
        self.weight, self.elements = weight.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() != self.weight:
                self.elements = max(self.elements, x.numel())
        return out


@by_config
@pytest.mark.parametrize("trained", [False, True])
def test_full_logits_never_exist(config, trained):
    vocab_size = 3000
    hidden, weight, targets, slots = problem(200, 25, VOCAB, vocab_size, 5)
    hidden.requires_grad_(), weight.requires_grad_(trained)
    with BiggestTensor(weight) as seen:
        found = CoordObjective(config, VOCAB).fused(hidden, weight, targets, slots, chunk_rows=4)
        found.total().backward()
        found.diagnostics()
    assert seen.elements <= max(4 * vocab_size, weight.numel() * trained)


def test_coordinate_rows_without_a_full_vocabulary_term_read_the_coordinate_rows_of_the_weight_alone():
    config = ObjectiveConfig.group_b(text_weight=0.0, soft_ce_weight=1.0, w1_weight=1.0)
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 6)
    weight[:30] = weight[70:] = torch.nan
    found = CoordObjective(config, VOCAB).fused(hidden.requires_grad_(), weight, targets, slots)
    found.total().backward()
    assert torch.isfinite(found.total())
    assert torch.isfinite(hidden.grad).all()


def test_a_frozen_weight_may_be_gone_after_the_forward_pass():
    """As sharded ones are (ZeRO-3, FSDP); only diagnostics then say that they need it."""
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
def test_inside_gradient_checkpointing(trained):
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 8)
    inputs = hidden.requires_grad_(), weight.requires_grad_(trained)
    objective = CoordObjective(EVERYTHING, VOCAB)

    def loss(hidden, weight):
        return objective.fused(hidden.tanh(), weight, targets, slots).total()

    wanted = [x for x in inputs if x.requires_grad]
    found = torch.autograd.grad(checkpoint(loss, *inputs, use_reentrant=False), wanted)
    for g, e in zip(found, torch.autograd.grad(loss(*inputs), wanted), strict=True):
        torch.testing.assert_close(g, e)


@pytest.mark.parametrize("trained", [False, True])
def test_under_autocast_the_products_alone_are_rounded(trained):
    hidden, weight, targets, slots = problem(20, 6, VOCAB, V, 9, torch.float32)
    offsets = torch.randn(40, H, generator=torch.Generator().manual_seed(9)).requires_grad_()
    objective = CoordObjective(EVERYTHING, VOCAB)
    hidden.requires_grad_(), weight.requires_grad_(trained)
    with torch.autocast("cpu", torch.bfloat16):
        logits = hidden @ weight.T
        total = objective.fused(hidden, weight, targets, slots, offsets).total()
        total.backward()
    assert logits.dtype == torch.bfloat16
    logits = logits.float().index_add(1, torch.tensor(VOCAB.ids), hidden @ offsets.T)
    torch.testing.assert_close(total, objective(logits, targets, slots).total(), rtol=1e-5, atol=1e-5)
    exact = readable(objective, hidden, weight, targets, slots, offsets).total()
    for x, e in zip((hidden, offsets), torch.autograd.grad(exact, (hidden, offsets)), strict=True):
        assert x.grad.dtype == torch.float32
        assert torch.linalg.vector_norm(x.grad - e) < 0.02 * torch.linalg.vector_norm(e)


def test_readable_losses_are_not_rounded_by_autocast():
    hidden, weight, targets, slots = problem(20, 6, VOCAB, V, 9, torch.float32)
    logits = hidden @ weight.T
    exact = CoordObjective(EVERYTHING, VOCAB)(logits, targets, slots).total()
    with torch.autocast("cpu", torch.bfloat16):
        found = CoordObjective(EVERYTHING, VOCAB)(logits, targets, slots).total()
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-6)


def test_without_gradients_it_only_counts():
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 10)
    with torch.no_grad():
        found, expected = both(EVERYTHING, hidden.requires_grad_(), weight.requires_grad_(), targets, slots)
    assert not found.total().requires_grad
    torch.testing.assert_close(found.total(), expected.total(), rtol=1e-10, atol=1e-10)


def test_errors_say_which_parts_do_not_fit():
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 11)
    fused = CoordObjective(EVERYTHING, VOCAB).fused
    with pytest.raises(ValueError, match="last dimension"):
        fused(hidden[:, 1:], weight, targets, slots)
    with pytest.raises(ValueError, match="expanded"):
        fused(hidden, weight[:69], targets, slots)
    with pytest.raises(ValueError, match=r"offsets_KH must be \[40, 6\]"):
        fused(hidden, weight, targets, slots, torch.zeros(41, H))
    with pytest.raises(ValueError, match="twice"):
        fused(hidden, weight, targets, slots, torch.zeros(2, H), offset_ids_K=[3, 3])
    with pytest.raises(ValueError, match=r"0\.\.89"):
        fused(hidden, weight, targets, slots, torch.zeros(2, H), offset_ids_K=[3, 90])
    with pytest.raises(ValueError, match="chunk_rows"):
        fused(hidden, weight, targets, slots, chunk_rows=0)
