"""Muon for the matrices of linear layers, AdamW for everything else, at one learning rate.

The update of a matrix is its momentum with all singular values brought near 1 by five Newton-Schulz iterations
(Jordan and others, 2024), so that rare gradient directions are learnt as fast as common ones. It is scaled to the root
mean square of AdamW's updates (Liu and others, arXiv 2502.16982), so that both use one learning rate and weight decay.

A layer that reads several patches side by side, as the first one of a merger, is one matrix a patch: the iterations
cost the cube of a matrix's shorter side, and were a fifth of the first run's step for two layers that read four.

`torch.optim.Muon` does the same for one matrix at a time in bfloat16, which most CPUs multiply slowly.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from coord_codec import InputError
from coord_detect.model.patch_embedding import takes_patches

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_MOMENTUM = 0.95
_ADAM_RMS = 0.2
"""The root mean square of AdamW's updates, as a multiple of the learning rate, as measured by Liu and others."""


class MuonAdamW(torch.optim.AdamW):
    """AdamW that updates groups by Muon where `"muon"` is not 0: the number of matrices side by side in a parameter.

    Kernels are taken as matrices.

    Example:
        >>> weight, bias = nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(3))
        >>> optimizer = MuonAdamW([{"params": [weight], "muon": 1}, {"params": [bias], "muon": 0}], lr=0.1)
        >>> weight.grad, bias.grad = torch.ones(3, 2), torch.ones(3)
        >>> optimizer.step()
        >>> sorted(optimizer.state[weight]), sorted(optimizer.state[bias])
        (['momentum_buffer', 'step'], ['exp_avg', 'exp_avg_sq', 'step'])
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step; returns the result of `closure` if it is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        matrices = [
            (matrix, matrix.grad, group)
            for group in self.param_groups
            if group["muon"]
            for matrix in group["params"]
            if matrix.grad is not None
        ]
        for matrix, _, _ in matrices:
            matrix.grad = None  # AdamW skips parameters without gradient
        super().step()
        stacks: dict[Any, list[tuple[Tensor, Tensor, dict[str, Any]]]] = defaultdict(list)
        for matrix, gradient, group in matrices:
            matrix.grad = gradient
            key = (*matrix.shape, group["muon"], matrix.dtype, matrix.device)
            stacks[key].append((matrix, self._momentum(matrix, gradient), group))
        for stack in stacks.values():
            blocks = stack[0][2]["muon"]
            rows = torch.stack([momentum.flatten(1) for _, momentum, _ in stack])
            directions = orthogonal(torch.cat(rows.chunk(blocks, dim=2)))
            joined = torch.cat(directions.chunk(blocks), dim=2)
            for (matrix, _, group), direction in zip(stack, joined, strict=True):
                rate = group["lr"]
                matrix.mul_(1 - rate * group["weight_decay"])
                size = -rate * _ADAM_RMS * math.sqrt(max(directions.shape[1:]))
                matrix.add_(direction.view_as(matrix), alpha=size)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state.

        Raises:
            InputError: the state belongs to other groups of parameters, as an earlier version made them.
        """
        saved, own = _layout(state_dict["param_groups"]), _layout(self.param_groups)
        if saved != own:
            raise InputError(
                "run.resume: the checkpoint's optimizer.pt is of other groups of parameters, by another version "
                f"of coord-trainer or for other trained parts (matrices by Muon and parameters: expected {own}, "
                f"found {saved}); continue with that version, or train anew from the checkpoint by model.path"
            )
        super().load_state_dict(state_dict)

    def _momentum(self, matrix: Tensor, gradient: Tensor) -> Tensor:
        """Add a gradient to the momentum; returns the Nesterov momentum."""
        state = self.state[matrix]
        if not state:
            state["step"] = torch.zeros(())  # AdamW requires it when it loads a state
            state["momentum_buffer"] = torch.zeros_like(matrix)
        state["step"] += 1
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - _MOMENTUM)
        return gradient.lerp(momentum, _MOMENTUM)


def _layout(groups: Iterable[dict[str, Any]]) -> list[tuple[int | None, int]]:
    """Return the matrices side by side, None where a group does not say, and the number of parameters of each group."""
    return [(group.get("muon"), len(group["params"])) for group in groups]


def orthogonal(matrices: Tensor) -> Tensor:
    """Return matrices `[B, M, N]` with the same singular vectors and all singular values between about .7 and 1.2.

    Newton-Schulz iterations with the published coefficients; in bfloat16 on a GPU, in float32 elsewhere.
    """
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    # An iteration multiplies x by a polynomial of its Gram matrix, so that all five are one factor of the smaller side:
    # fewer products from a ratio of the sides of 3/2 on. In bfloat16 the Gram matrix would lose its small eigenvalues.
    by_factor = x.dtype == torch.float32 and 2 * x.shape[-1] > 3 * x.shape[-2]
    x = _factor(x @ x.mT) @ x if by_factor else _iterated(x)
    return (x.mT if tall else x).to(matrices.dtype)


def _iterated(x: Tensor) -> Tensor:
    """Return matrices `[B, M, N]` after all iterations."""
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _factor(gram: Tensor) -> Tensor:
    """Return what all iterations multiply matrices by, `[B, M, M]`, from their Gram matrices."""
    a, b, c = _COEFFICIENTS
    factor: Tensor | None = None
    for iteration in range(_ITERATIONS):
        step = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        step.diagonal(dim1=-2, dim2=-1).add_(a)
        factor = step if factor is None else step @ factor
        if iteration < _ITERATIONS - 1:
            gram = step @ gram @ step
    assert factor is not None  # there are iterations
    return factor


def muon_groups(model: Any, groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Split an optimizer's parameter groups into the matrices of linear layers and everything else.

    The patch embedding, a convolution, counts as a linear layer. The output head does not: like an embedding's, its
    rows belong to tokens, most of which do not occur in a batch.
    """
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    inner = {
        id(module.weight): _patches_of(model, module)
        for module in model.modules()
        if (isinstance(module, nn.Linear) and module is not head) or takes_patches(module)
    }
    split = []
    for group in groups:
        counts = [inner.get(id(parameter), 0) for parameter in group["params"]]
        for blocks in sorted(set(counts), reverse=True):
            own = [p for p, count in zip(group["params"], counts, strict=True) if count == blocks]
            split.append({**group, "params": own, "muon": blocks})
    return split


def _patches_of(model: nn.Module, layer: nn.Module) -> int:
    """Return how many patches of the vision tower a layer reads side by side; 1 for any other layer."""
    vision = getattr(getattr(model, "config", None), "vision_config", None)
    merged = getattr(vision, "spatial_merge_size", 1) ** 2
    reads = getattr(layer, "in_features", 0)
    return merged if reads == merged * getattr(vision, "hidden_size", 0) else 1
