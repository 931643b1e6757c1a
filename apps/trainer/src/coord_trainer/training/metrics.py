"""Names the figures of a log line, and computes gradient norms.

The sums are those of `coord_losses.hf.metrics.StepMetrics`. The total is the sum of the weighted text, coord_ce and
coord (geometry) losses and of coord_diag/loss, which includes every other term. New terms of the objective need no
change here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from coord_losses import ObjectiveOutput, denominator_of, registered_terms
from coord_losses.hf.metrics import StepMetrics

STEP_TIME = "seconds_per_step"
"""Name in metrics.jsonl of the mean time of the steps since the last line, without evaluations and checkpoints."""


def log_line(metrics: StepMetrics, sums: Mapping[str, float], prefix: str) -> dict[str, float]:
    """Return names and values of a log line, from the sums of `metrics.flush`; empty if they are.

    The prefix is empty while training, and `eval_` for an evaluation.
    """
    if not sums:
        return {}
    weights = metrics.weights
    mean, measured = metrics.means(sums)
    weighted = {term: weight * mean[term] for term, weight in weights.items()}
    terms = registered_terms()
    # Terms with a name of their own; the weighted sum of the others is `coord_diag/loss`.
    losses = {term.loss_key: weighted.get(name, 0.0) for name, term in terms.items() if term.loss_key}
    others = [name for name in weights if not terms[name].loss_key]
    distribution_loss = sum((weighted[name] for name in others), start=0.0)
    diagnostics = {
        "loss": distribution_loss,
        **{terms[name].log_key: mean[name] for name in others},
        **{name: value for name, value in measured.items() if name not in weights},
        "coord_tokens": sums["coord_tokens"],
        "enabled": float(bool(others)),
    }
    if sums["fallback_boxes"]:
        diagnostics["fallback_boxes"] = sums["fallback_boxes"]
    start = prefix or "train_"
    total = {"total_loss": sum(losses.values()) + distribution_loss}
    return {f"{start}{name}": value for name, value in (total | losses).items()} | {
        f"{prefix}coord_diag/{name}": value for name, value in diagnostics.items()
    }


def term_gradient_norms(
    output: ObjectiveOutput,
    parameters: Iterable[torch.nn.Parameter],
    denominators: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, float]:
    """Return the L2 norm of the gradient of `weight · sum / denominator`, by term, before clipping.

    It takes one extra backward pass per term and keeps the graph for the training step. With gradient
    accumulation or several ranks it is the share of this micro-batch on this rank.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    counts = output.counts if denominators is None else denominators
    norms = []
    for name, term in output.terms.items():
        share = output.weights[name] * term.sum / torch.as_tensor(counts[denominator_of(name)]).clamp(min=1)
        gradients = torch.autograd.grad(share, trained, retain_graph=True, allow_unused=True)
        squares = [gradient.float().pow(2).sum() for gradient in gradients if gradient is not None]
        norms.append(torch.stack(squares).sum().sqrt() if squares else torch.zeros_like(share))
    return dict(zip(output.terms, torch.stack(norms).tolist(), strict=True))
