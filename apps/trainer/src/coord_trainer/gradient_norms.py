"""How hard each term pulls: the norm of its own gradient, before any clipping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from coord_losses import ObjectiveOutput, denominator_of


def term_gradient_norms(
    output: ObjectiveOutput,
    parameters: Iterable[torch.nn.Parameter],
    denominators: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, float]:
    """L2 norm over all trained parameters of `weight · sum / denominator`, term by term.

    One more backward pass for each term; the graph stays for the real one. Of accumulated or parallel batches
    it is this micro-batch's share on this rank.

    Args:
        output: attached to the graph.
        parameters: of the model; frozen ones are passed over.
        denominators: as for `ObjectiveOutput.total`.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    counts = output.counts if denominators is None else denominators
    norms = {}
    for name, term in output.terms.items():
        share = output.weights[name] * term.sum / torch.as_tensor(counts[denominator_of(name)]).clamp(min=1)
        gradients = torch.autograd.grad(share, trained, retain_graph=True, allow_unused=True)
        squares = [gradient.float().pow(2).sum() for gradient in gradients if gradient is not None]
        norms[name] = float(torch.stack(squares).sum().sqrt()) if squares else 0.0
    return norms
