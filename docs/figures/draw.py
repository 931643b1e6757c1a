"""Draws the figures of the theory pages with the functions they are about.

python docs/figures/draw.py          writes the SVGs beside this file
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

from coord_codec import CoordGrid
from coord_eval.html import PALETTE, Chart, chart
from coord_losses import box_loss, generalized_iou, soft_cross_entropy, soft_targets, vocab_gate, wasserstein1

F64 = torch.float64


def drawing(alt: str, panels: int = 1) -> Chart:
    """A chart in a grey that can be read on the light and the dark page."""
    return chart(alt, panels=panels, width=360, height=260, ink="#888888")


def soft_target_edges() -> str:
    """Targets in the middle and at the edge of the range."""
    with drawing("Soft targets in the middle of the range and two bins from its edge", 2) as drawn:
        titles = ("true bin 500", "true bin 2: truncated and renormalised")
        for axes, title, t, first in zip(drawn.panels, titles, (500, 2), (490, 0), strict=True):
            q_K = soft_targets(torch.tensor([t]), dtype=F64)[0]
            bins = list(range(first, first + 21))
            axes.bar(bins, q_K[bins].tolist(), 0.8, color=PALETTE[0], label="target probability q")
            axes.set(title=title, xlabel="bin", ylim=(0, 0.25), xticks=bins[::5], yticks=[0, 0.1, 0.2])
    return drawn.svg


def _peak(at_N: torch.Tensor) -> torch.Tensor:
    """Logits [N, 1000] of a model that is certain of bin `at_N`, up to two bins."""
    return 12 * torch.exp(-0.5 * ((torch.arange(1000, dtype=F64) - at_N[:, None]) / 2) ** 2)


def wasserstein() -> str:
    """What W1 measures, and how it grows with an error while cross-entropies do not."""
    target = soft_targets(torch.tensor([480]), sigma=12, truncate=60, dtype=F64)[0]
    guess = soft_targets(torch.tensor([530]), sigma=20, truncate=80, dtype=F64)[0]
    shown = list(range(420, 621))
    cdf_q, cdf_p = target.cumsum(0)[shown].tolist(), guess.cumsum(0)[shown].tolist()
    errors = torch.arange(0, 401, 4)
    logits = _peak(500 + errors.to(F64))
    hard, soft = (soft_targets(torch.tensor([500]), truncate=reach, dtype=F64).expand_as(logits) for reach in (0, 16))

    def each(loss: Callable[..., tuple[torch.Tensor, torch.Tensor]], targets: torch.Tensor) -> list[float]:
        values = [loss(logits[i : i + 1], targets[i : i + 1])[0].item() for i in range(len(errors))]
        return [value / max(values) for value in values]

    with drawing("W1 as an area, and losses against the distance of an error", 2) as drawn:
        area, growth = drawn.panels
        area.plot(shown, cdf_q, color=PALETTE[0], label="target")
        area.plot(shown, cdf_p, color=PALETTE[1], label="prediction")
        area.fill_between(shown, cdf_p, cdf_q, color=PALETTE[2], alpha=0.25, label="W1 · 999")
        area.set(title="W1 is the area between the CDFs", xlabel="bin", ylim=(0, 1))
        growth.plot(errors, each(soft_cross_entropy, hard), label="one-hot CE")
        growth.plot(errors, each(soft_cross_entropy, soft), label="soft CE", linestyle="--")
        growth.plot(errors, each(wasserstein1, soft), label="W1")
        growth.set(title="relative to the largest value", xlabel="bins between prediction and target")
    return drawn.svg


def gate() -> str:
    """The gate against the mass on coordinate tokens, and its gradient on the other tokens."""
    ids = range(1000, 2000)
    masses, losses, gradients = [], [], []
    for lift in torch.linspace(-6, 6, 121, dtype=F64):
        logits = torch.zeros(1, 2000, dtype=F64)
        logits[:, list(ids)] = lift
        logits.requires_grad_()
        loss = vocab_gate(logits, ids).sum
        loss.backward()
        masses.append(logits.softmax(1)[0, list(ids)].sum().item())
        losses.append(loss.item())
        gradients.append(logits.grad[0, :1000].sum().item())
    with drawing("The gate is minus the log of the mass on coordinate tokens") as drawn:
        drawn.axes.plot(masses, losses, label="loss (nats)")
        drawn.axes.plot(masses, gradients, label="gradient on other tokens")
        drawn.axes.set(
            title="the vocabulary gate", xlabel="probability mass on coordinate tokens", xlim=(0, 1), ylim=(0, 4)
        )
    return drawn.svg


def giou() -> str:
    """Disjoint boxes, and boxes whose corners are swapped: where GIoU still has a gradient."""
    true = torch.tensor([[0.3, 0.3, 0.5, 0.5]], dtype=F64)
    shifts = torch.linspace(-0.3, 0.5, 161, dtype=F64)
    moved = true + shifts[:, None] * torch.tensor([[1.0, 0, 1, 0]], dtype=F64)
    overlap = (0.2 - shifts.abs()).clamp(min=0) * 0.2
    ends = torch.linspace(0.0, 0.8, 161, dtype=F64)
    boxes = true.repeat(len(ends), 1)
    boxes[:, 2] = ends
    ordered = boxes.clone()
    ordered[:, 0], ordered[:, 2] = boxes[:, [0, 2]].amin(1), boxes[:, [0, 2]].amax(1)
    sorted_first = 1 - generalized_iou(ordered, true.expand_as(boxes))
    with drawing("GIoU of disjoint boxes and of boxes with swapped corners", 2) as drawn:
        apart, swapped = drawn.panels
        apart.plot(shifts, overlap / (0.08 - overlap), label="IoU")
        apart.plot(shifts, generalized_iou(moved, true.expand_as(moved)), label="GIoU")
        apart.set(title="a box moves past the true one", xlabel="shift", ylim=(-1, 1))
        swapped.plot(ends, [box_loss(b[None], true, 0.0, 1.0).sum.item() for b in boxes], label="1 - GIoU")
        swapped.plot(ends, sorted_first, label="corners sorted first", linestyle="--")
        swapped.set(
            title="swapped where x2 < 0.3",
            xlabel="x2 (x1 = 0.3, true x2 = 0.5)",
            ylim=(0, 2),
            xticks=[0, 0.3, 0.5, 0.8],
        )
    return drawn.svg


def quantisation() -> str:
    """The error of a coordinate after the grid, and the IoU of small boxes."""
    grid = CoordGrid()
    draw = torch.Generator().manual_seed(0)
    sides = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    with drawing("Quantisation error at both ends of the range, and IoU against the size of a box", 3) as drawn:
        first, last, iou = drawn.panels
        for axes, title, low in ((first, "first bins", 0.0), (last, "last bins: 1 is clamped to bin 999", 0.996)):
            coords = torch.linspace(low, low + 0.004, 161, dtype=F64)
            errors = (grid.dequantize(grid.quantize(coords)) - coords).to(F64) * grid.scale
            axes.plot(coords * 1000, errors, label="error in bins")
            ticks = [round(low * 1000) + i for i in range(5)]
            axes.set(title=title, xlabel="coordinate in thousandths", ylim=(-1, 1), xticks=ticks)
        for name, coarse in (("1000 bins", CoordGrid()), ("256 bins", CoordGrid(256, 256))):
            means = []
            for side in sides:
                corner = torch.rand(2000, 2, generator=draw, dtype=F64) * (1 - side / 640) * 0.99
                boxes = torch.cat([corner, corner + side / 640], dim=1)
                back = coarse.dequantize(coarse.quantize(boxes)).to(F64)
                low, high = torch.maximum(boxes[:, :2], back[:, :2]), torch.minimum(boxes[:, 2:], back[:, 2:])
                common = (high - low).clamp(min=0).prod(1)
                both = (boxes[:, 2:] - boxes[:, :2]).prod(1) + (back[:, 2:] - back[:, :2]).prod(1) - common
                means.append((common / both).mean().item())
            iou.plot(sides, means, label=name)
        iou.set(title="mean IoU after the grid", xlabel="side of a square in a 640-pixel image", ylim=(0.6, 1))
    return drawn.svg


PICTURES = {
    "soft-targets": soft_target_edges,
    "wasserstein": wasserstein,
    "gate": gate,
    "giou": giou,
    "quantisation": quantisation,
}


def main(folder: Path) -> None:
    """Write every figure into a folder."""
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
