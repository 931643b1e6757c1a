"""Precision of the fused form in float32 and half precision, and where logits are far apart."""

import pytest
import torch
from fused_problem import EVERYTHING, F64, VOCAB, H, V, both, by_config, gradients, problem, readable

from coord_losses import CoordObjective, ObjectiveConfig
from coord_losses.fused import one_pass
from coord_losses.fused.head import LinearHead


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


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("slope", [-300.0, 0.01, 12.0, 300.0, 2000.0])
@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.float16])
def test_logits_sloped_over_the_vocabulary(slope, trained, dtype):
    """Float16 ends at 65,504."""
    hidden, weight, targets, slots = problem(20, 6, VOCAB, V, 12)
    hidden[:, 0] = 1.0
    weight[:, 0] += slope * torch.linspace(0, 1, V, dtype=F64)
    hidden, weight = (x.to(dtype).requires_grad_(wanted) for x, wanted in ((hidden, True), (weight, trained)))
    found, expected = both(EVERYTHING, hidden, weight, targets, slots)
    close = {F64: {"rtol": 1e-10, "atol": 1e-10}, torch.float32: {"rtol": 1e-4, "atol": 2e-2}}.get(
        dtype, {"rtol": 1e-2, "atol": 0.3}
    )
    torch.testing.assert_close(found.total(), expected.total(), **close)
    inputs = (hidden, weight) if trained else (hidden,)
    for g, e in zip(gradients(found, inputs, [1.0] * 6), gradients(expected, inputs, [1.0] * 6), strict=True):
        torch.testing.assert_close(g, e, **close)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("names", [("coord_ce",), ("gate",), ("coord_ce", "gate")], ids=" and ".join)
def test_small_losses_and_gradients_keep_their_digits(trained, names):
    """The usual `p - 1` has none left where a probability rounds to 1; here loss and gradient are about 1e-9."""
    _, _, targets, slots = problem(20, 6, VOCAB, V, 13)
    objective = CoordObjective(ObjectiveConfig(**{f"{name}_weight": 1.0 for name in names}), VOCAB)
    noise = torch.rand(V, V, generator=torch.Generator().manual_seed(13))
    inputs = [5 * torch.eye(V)[targets], 5 * torch.eye(V) + 0.1 * noise]

    def run(form, dtype):
        hidden, weight = (x.to(dtype, copy=True).requires_grad_() for x in inputs)
        if form == "fused":
            frozen = weight if trained else weight.detach()
            output = objective.fused(hidden, frozen, targets, slots)
        else:
            output = objective(hidden @ weight.T, targets, slots)
        gradients = torch.autograd.grad(output.total(), [hidden, weight][: 1 + trained])
        return {name: output.terms[name].sum for name in names}, gradients

    losses, grads = run("fused", torch.float32)
    exact, exact_grads = run("readable", F64)
    for name in names:
        assert losses[name] < 1e-7
        torch.testing.assert_close(losses[name].double(), exact[name], rtol=1e-4, atol=0)
    for g, e in zip(grads, exact_grads, strict=True):
        assert torch.linalg.vector_norm(g - e) < 1e-4 * torch.linalg.vector_norm(e)


@pytest.mark.parametrize("trained", [False, True])
def test_autocast_rounds_the_products_alone(trained):
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


def test_autocast_does_not_round_the_readable_form():
    hidden, weight, targets, slots = problem(20, 6, VOCAB, V, 9, torch.float32)
    logits = hidden @ weight.T
    exact = CoordObjective(EVERYTHING, VOCAB)(logits, targets, slots).total()
    with torch.autocast("cpu", torch.bfloat16):
        found = CoordObjective(EVERYTHING, VOCAB)(logits, targets, slots).total()
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-6)


def test_passes_that_cannot_be_compiled_are_told_once_and_run_as_they_are(monkeypatch):
    hidden, weight, targets, slots = problem(6, 3, VOCAB, V, 3)
    tried = []

    def broken(function):
        tried.append(function)
        raise RuntimeError("no compiler\nand more of it")

    monkeypatch.setattr(one_pass, "_COMPILED_ON", {"cpu"})
    monkeypatch.setattr(one_pass, "_compiled", broken)
    with pytest.warns(UserWarning, match=r"not compiled, so slower and larger: no compiler$") as told:
        for _ in range(2):
            found, expected = both(EVERYTHING, hidden, weight, targets, slots)
            torch.testing.assert_close(found.total(), expected.total(), rtol=1e-10, atol=1e-10)
    assert len(tried) == len(told) == 1


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("cap", [None, 5.0])
def test_compiled_pass_equals_the_plain_one(cap, monkeypatch):
    """On a GPU the passes over the logits are compiled."""
    rng = torch.Generator().manual_seed(3)
    logits, added = torch.randn(9, V, generator=rng).bfloat16(), torch.randn(9, 5, generator=rng)
    factor_R1 = torch.tensor([1.0] * 4 + [0.5] * 5)[:, None]
    shape = one_pass.LogitShape(None if cap is None else torch.randn(V, generator=rng), cap, factor_R1)
    offsets = torch.zeros(5, H), torch.tensor([3, 31, 32, 69, 80])
    apart = one_pass.Apart.of(LinearHead.of(slice(30, 70), torch.zeros(V, H), *offsets))
    compiled, results = {"cpu"}, []
    for devices in (compiled, set()):
        monkeypatch.setattr(one_pass, "_COMPILED_ON", devices)
        gradient = logits.clone()
        sets = one_pass.Sets.of(torch.tensor([0, 3, 31, 85]), 5, apart)
        found = one_pass.nll_and_gradient_(gradient, sets, apart, added, shape, True)
        results.append((*found, gradient))
    assert compiled == {"cpu"}  # else it was not compiled, and the plain pass ran twice
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-2 if found.dtype == torch.bfloat16 else 1e-5, atol=1e-6)
