"""The Triton kernels against the readable form, in Triton's interpreter: run as a script, which sets it beforehand."""

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from fused_problem import CONFIGS, EVERYTHING, F64, VOCAB, H, V, problem, readable

from coord_losses import CoordObjective

IDS = [*VOCAB.ids[::-1], 3, 80]
ALL = EVERYTHING.model_copy(update={"label_smoothing": 0.1, "z_loss_weight": 0.1, "extra_weights": {"dfl": 0.5}})
CASES = {
    "a": (CONFIGS["a"], False, None, None, {}),
    "soft, warmer": (CONFIGS["soft, warmer"], False, None, list(VOCAB.ids), {"softcap": 3.0}),
    "colder, bias and cap": (CONFIGS["everything, colder"], True, True, None, {"softcap": 2.0, "logit_scale": 0.5}),
    "all terms, markers": (ALL, True, True, IDS, {}),
    "all terms, markers, frozen": (ALL, False, None, IDS, {"softcap": 3.0}),
}


def run(form, dtype, config, trained, bias, ids, after, **options):
    """Total and gradients in float64."""
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 5)
    inputs = {"hidden": hidden.to(dtype), "weight": weight.to(dtype)}
    inputs = {k: x.double() if dtype is F64 else x for k, x in inputs.items()}
    inputs["hidden"].requires_grad_(), inputs["weight"].requires_grad_(trained)
    wide = torch.promote_types(dtype, torch.float32)
    rng = torch.Generator().manual_seed(7)
    if bias:
        inputs["bias"] = torch.randn(V, generator=rng, dtype=F64).to(wide).requires_grad_()
    if ids:
        inputs["offsets"] = torch.randn(len(ids), H, generator=rng, dtype=F64).to(wide).requires_grad_()
    objective, offsets = CoordObjective(config, VOCAB), inputs.get("offsets")
    if form == "readable":
        output = readable(
            objective,
            *(inputs[k] for k in ("hidden", "weight")),
            targets,
            slots,
            offsets,
            ids,
            bias_V=inputs.get("bias"),
            **after,
        )
    else:
        output = objective.fused(
            inputs["hidden"], inputs["weight"], targets, slots, offsets, offset_ids_K=ids, bias_V=inputs.get("bias"),
            kernel="triton", **after, **options,
        )  # fmt: skip
    wanted = [x for x in inputs.values() if x.requires_grad]
    loss = sum((0.5 + i) * term.sum for i, term in enumerate(output.terms.values()))
    return [x.detach().double() for x in (loss, *torch.autograd.grad(loss, wanted))]


def main():
    for name, case in CASES.items():
        exact = run("readable", F64, *case)
        for found, e in zip(run("triton", torch.float32, *case), exact, strict=True):
            torch.testing.assert_close(found, e, rtol=2e-5, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
        usual = run("readable", torch.bfloat16, *case)
        for found, other, e in zip(run("triton", torch.bfloat16, *case), usual, exact, strict=True):
            error, allowed = (torch.linalg.vector_norm(x - e) for x in (found, other))
            assert error <= 1.3 * allowed + 0.008 * torch.linalg.vector_norm(e), f"{name}: {error} against {allowed}"
    filtered(*CASES["a"])


def filtered(config, *case):
    exact = run("readable", F64, config, *case)
    total = problem(9, 3, VOCAB, V, 5)[1].norm(dim=1).sum()
    errors = []
    for least in (1e-3, 0.05, 2.0):
        loss, grad = run("triton", torch.float32, config, *case, gradient_filter=least)
        torch.testing.assert_close(loss, exact[0], rtol=1e-5, atol=1e-5)
        errors.append((grad - exact[1]).norm(dim=1).max())
        assert errors[-1] <= 1.5 * least * total + 1e-4  # factors of the terms are .5 and 1.5
    assert errors[0] <= errors[1] <= errors[2]
    assert errors[0] < 1e-4 and errors[2] > 0.1  # no tile is left out, then all of them are
    # The tile of the largest gradient, that of the least likely target, is the last that is left out.
    hidden, weight, targets, _ = problem(9, 3, VOCAB, V, 5)
    log_p_NV = torch.log_softmax(hidden.double() @ weight.double().T, dim=1)
    largest = 1 - float(log_p_NV.gather(1, targets[:, None]).min().exp())
    nothing = run("triton", torch.float32, config, *case, gradient_filter=2.0)[1]
    below, above = (
        run("triton", torch.float32, config, *case, gradient_filter=largest * (1 + sign * 1e-3))[1] for sign in (-1, 1)
    )
    assert (above == nothing).all() and not (below == nothing).all()


if __name__ == "__main__":
    main()
