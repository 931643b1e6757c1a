"""The fused objective is the readable one on hidden · weightᵀ, in values and gradients."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots

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


@settings(max_examples=250, deadline=None)
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
    for name, term in expected.diagnostics().items():
        torch.testing.assert_close(found.diagnostics()[name].sum, term.sum, **close)
        assert found.diagnostics()[name].count == term.count
        assert not found.diagnostics()[name].sum.requires_grad


VOCAB = CoordVocab(30, CoordGrid(40, 40))
EVERYTHING = ObjectiveConfig(
    coord_ce_weight=1.0, soft_ce_weight=1.0, w1_weight=1.0, gate_weight=1.0, box_weight=1.0
)
