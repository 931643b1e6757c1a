"""Compares the fused objective with other implementations of cross-entropy, in bfloat16 with V = 152,704.

    python benchmarks/gpu/objective.py [--quick] [--device cpu]

Forward and backward pass are timed. "Products alone" are the matrix products that every implementation needs (two with
a frozen head, three with a trained one).
Implementations that are not installed, or do not run on this device, have no row. "Off by" is the relative error of
the gradient of the hidden states against cross-entropy in float32 on full logits. Inputs are random, where nearly all
probabilities round to nothing, or peaked: each row's target has about half of the probability.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch
import typer
from measure import Device, DeviceOption, Quick, cost, machine, megabytes, note, release, tell
from torch import Tensor
from torch.nn import functional

from coord_codec import CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots

SIZES = [(h, n) for h in (2048, 4096) for n in (4096, 16384)]
QUICK_SIZES = [(64, 256)]
ROWS = (512, 2048, 4096)
"""Rows at a time to try."""
CONFIGS = {
    "CE alone": ObjectiveConfig.group_a(),
    "soft CE + W1 + gate": ObjectiveConfig.soft(),
    "all terms": ObjectiveConfig.mixed(box_weight=1.0),
}


def liger() -> Callable[..., Tensor]:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss()
    return lambda hidden, weight, targets: loss(weight, hidden, targets)


def cut(implementation: str) -> Callable[..., Tensor]:
    from cut_cross_entropy import linear_cross_entropy

    return partial(linear_cross_entropy, impl=implementation)


def quack() -> Callable[..., Tensor]:
    from quack.linear_cross_entropy import chunked_linear_cross_entropy

    return partial(chunked_linear_cross_entropy, reduction="mean")


RIVALS = {
    "Liger-Kernel": liger,
    "cut-cross-entropy": partial(cut, "cce"),
    "cut-cross-entropy, no gradient filter": partial(cut, "cce_exact"),
    "cut-cross-entropy, compiled by torch": partial(cut, "torch_compile"),
    "QuACK": quack,
}
"""Other implementations of cross-entropy, as functions of hidden states, weight and targets."""


@dataclass
class Problem:
    """A quarter of the rows are coordinates, in objects of four."""

    hidden_NH: Tensor
    weight_VH: Tensor
    targets_N: Tensor
    objects: ObjectSlots
    vocab: CoordVocab

    @classmethod
    def draw(cls, vocab_size: int, hidden: int, rows: int, device: str, trained: bool, peaked: bool) -> "Problem":
        torch.manual_seed(0)
        vocab = CoordVocab(vocab_size - 1000)
        settings = {"dtype": torch.bfloat16, "device": device}
        weight_VH = torch.empty(vocab_size, hidden, **settings).normal_(0, 0.02).requires_grad_(trained)
        hidden_NH = torch.randn(rows, hidden, **settings).requires_grad_()
        targets_N = torch.randint(0, vocab.first_id, (rows,), device=device)
        slots_M4 = torch.arange(rows // 16 * 4, device=device).view(-1, 4)
        coords = slots_M4.numel()
        targets_N[:coords] = torch.randint(vocab.first_id, vocab_size, (coords,), device=device)
        corners = torch.rand(len(slots_M4), 2, 2, device=device)
        boxes_M4 = torch.cat([corners.amin(1), corners.amax(1)], dim=1)
        objects = ObjectSlots(slots_M4, boxes_M4, torch.zeros_like(slots_M4[:, 0]))
        if peaked:
            with torch.no_grad():
                rows_NH = weight_VH[targets_N].float()
                gain = math.log(vocab_size) / rows_NH.square().sum(dim=1, keepdim=True)
                hidden_NH.add_((gain * rows_NH).to(hidden_NH.dtype))
        return cls(hidden_NH, weight_VH, targets_N, objects, vocab)

    def full(self) -> Tensor:
        return functional.cross_entropy((self.hidden_NH @ self.weight_VH.T).float(), self.targets_N)

    def fused(self, config: ObjectiveConfig, offset_ids: Tensor | None = None, **chunks: int) -> Tensor:
        offsets = {}
        if offset_ids is not None:
            table_KH = torch.zeros(len(offset_ids), self.hidden_NH.shape[1], device=offset_ids.device)
            offsets = {"offsets_KH": table_KH.requires_grad_(), "offset_ids_K": offset_ids}
        objective, counts = CoordObjective(config, self.vocab), self.counts()
        return objective.fused(
            self.hidden_NH, self.weight_VH, self.targets_N, self.objects, **offsets, **chunks, denominators=counts
        ).total(counts)

    def counts(self) -> dict[str, float]:
        """Return the denominators, which a trainer counts over all micro-batches of a step before the first."""
        objects = len(self.objects.boxes_M4)
        return {"tokens": len(self.targets_N), "coord_tokens": 4 * objects, "objects": objects}

    @torch.no_grad()
    def products(self) -> None:
        logits_NV = self.hidden_NH @ self.weight_VH.T
        torch.mm(logits_NV, self.weight_VH)
        if self.weight_VH.requires_grad:
            torch.mm(logits_NV.T, self.hidden_NH)

    def rivals(self) -> Iterator[tuple[str, Callable[[], Tensor]]]:
        """Yield the installed implementations of cross-entropy alone."""
        yield "`F.cross_entropy` on full logits", self.full
        if hasattr(torch.nn, "LinearCrossEntropyOptions"):
            options = torch.nn.LinearCrossEntropyOptions()
            function = functional.linear_cross_entropy
            yield (
                "torch `F.linear_cross_entropy`",
                lambda: function(self.hidden_NH, self.weight_VH, self.targets_N, options=options),
            )
        for name, make in RIVALS.items():
            yield name, partial(lambda make: make()(self.hidden_NH, self.weight_VH, self.targets_N), make)

    def ours(self) -> Iterator[tuple[str, Callable[[], Tensor]]]:
        for name, config in CONFIGS.items():
            yield f"fused, {name}", partial(self.fused, config)
        every = CONFIGS["all terms"]
        ids_K = torch.tensor(self.vocab.ids, device=self.hidden_NH.device)
        yield "fused, all terms, offsets", partial(self.fused, every, ids_K)
        with_markers_K = torch.cat([ids_K, torch.arange(4, device=ids_K.device)])
        yield "fused, all terms, offsets of four markers too", partial(self.fused, every, with_markers_K)
        if not self.weight_VH.requires_grad:
            for chunk_rows in ROWS:
                if chunk_rows < len(self.hidden_NH):
                    name = f"fused, CE alone, {chunk_rows:,} rows at a time"
                    yield name, partial(self.fused, CONFIGS["CE alone"], chunk_rows=chunk_rows)


def forward_backward(problem: Problem, loss: Callable[[], Tensor]) -> Tensor:
    """Return the gradient of the hidden states; all gradients are computed and dropped."""
    loss().backward()
    gradient = problem.hidden_NH.grad
    problem.hidden_NH.grad = problem.weight_VH.grad = None
    return gradient


def measured(problem: Problem, device: str) -> Iterator[list[object]]:
    """Yield a row for the products alone, and for each way that is installed and runs on this device."""
    wide = replace(problem, hidden_NH=problem.hidden_NH.detach().float().requires_grad_())
    wide.weight_VH = problem.weight_VH.detach().float()
    exact_NH = forward_backward(wide, wide.full)
    del wide
    release(device)
    products = cost(problem.products, device)
    yield ["products alone", f"{products.seconds * 1e3:.2f}", "", "", products.syncs, ""]
    rivals, ours = dict(problem.rivals()), dict(problem.ours())
    for name, loss in {**rivals, **ours}.items():
        note(name)
        try:
            found, off = cost(partial(forward_backward, problem, loss), device), ""
            if name in rivals or "CE alone" in name:
                error_NH = forward_backward(problem, loss).float() - exact_NH
                off = f"{(error_NH.norm() / exact_NH.norm()).item():.1e}"
            share = f"{products.seconds / found.seconds:.0%}"
            yield [name, f"{found.seconds * 1e3:.2f}", share, megabytes(found.extra_bytes), found.syncs, off]
        except Exception as error:  # one way that fails must not take the others along
            problem.hidden_NH.grad = problem.weight_VH.grad = None
            note(f"{name} failed: {error!r:.300}")
        release(device)


def main(device: DeviceOption = Device.cuda, quick: Quick = False) -> None:
    """Compare the fused objective with other ways to cross-entropy."""
    print(machine(device))
    vocab_size = 3000 if quick else 152_704
    for (hidden, rows), trained, peaked in product(QUICK_SIZES if quick else SIZES, (False, True), (False, True)):
        tell(
            "way | ms | share of the products | extra MB | host waits | off by",
            measured(Problem.draw(vocab_size, hidden, rows, device, trained, peaked), device),
            f"H = {hidden}, N = {rows:,}, V = {vocab_size:,}, {'trained' if trained else 'frozen'} head, "
            f"{'peaked' if peaked else 'random'} inputs",
        )


if __name__ == "__main__":
    typer.run(main)
