"""Draws the pictures of the theory pages with the functions they are about.

python docs/pictures/draw.py          writes the SVGs beside this file
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from plot import Panel, picture

from coord_codec import CoordGrid
from coord_losses import box_loss, generalized_iou, soft_cross_entropy, soft_targets, vocab_gate, wasserstein1

F64 = torch.float64


def soft_target_edges() -> str:
    """Targets in the middle and at the edge of the range."""
    panels = []
    for title, t, first in (("true bin 500", 500, 490), ("true bin 2: cut off and renormalised", 2, 0)):
        q_K = soft_targets(torch.tensor([t]), dtype=F64)[0]
        bins = list(range(first, first + 21))
        ticks = [*range(first, first + 21, 5)]
        panel = Panel(title, "bin", (first - 0.7, first + 20.7), (0, 0.25), ticks, [0, 0.1, 0.2])
        panel.bars("target probability q", bins, q_K[bins].tolist(), 0.8)
        panels.append(panel)
    return picture("Soft targets in the middle of the range and two bins from its edge", panels)


def _peak(at: torch.Tensor) -> torch.Tensor:
    """Logits [N, 1000] of a model that is sure, give or take two bins, of bin `at` [N]."""
    return 12 * torch.exp(-0.5 * ((torch.arange(1000, dtype=F64) - at[:, None]) / 2) ** 2)


def wasserstein() -> str:
    """What W1 measures, and how it grows with a miss while cross-entropies stand still."""
    target = soft_targets(torch.tensor([480]), sigma=12, truncate=60, dtype=F64)[0]
    guess = soft_targets(torch.tensor([530]), sigma=20, truncate=80, dtype=F64)[0]
    shown = list(range(420, 621))
    area = Panel(
        "W1 is the area between the CDFs", "bin", (420, 620), (0, 1), range(420, 621, 50), [0, 0.5, 1]
    )
    cdf_q, cdf_p = target.cumsum(0)[shown].tolist(), guess.cumsum(0)[shown].tolist()
    area.line("target", shown, cdf_q)
    area.line("prediction", shown, cdf_p)
    area.between("W1 · 999", shown, cdf_p, cdf_q)

    misses = torch.arange(0, 401, 4)
    logits = _peak(500 + misses.to(F64))
    hard, soft = (
        soft_targets(torch.tensor([500]), truncate=reach, dtype=F64).expand_as(logits) for reach in (0, 16)
    )

    def each(loss: Callable[..., tuple[torch.Tensor, torch.Tensor]], targets: torch.Tensor) -> list[float]:
        values = [loss(logits[i : i + 1], targets[i : i + 1])[0].item() for i in range(len(misses))]
        return [value / max(values) for value in values]

    grows = Panel(
        "share of its largest value", "bins between prediction and truth", (0, 400), (0, 1.05),
        range(0, 401, 100), [0, 0.5, 1],
    )  # fmt: skip
    grows.line("one-hot CE", misses.tolist(), each(soft_cross_entropy, hard))
    grows.line("soft CE", misses.tolist(), each(soft_cross_entropy, soft), dash="5 3")
    grows.line("W1", misses.tolist(), each(wasserstein1, soft))
    return picture("W1 as an area, and losses against the distance of a miss", [area, grows])


def gate() -> str:
    """The gate against the mass on coordinate tokens, and the gradient it gives the other tokens."""
    ids = range(1000, 2000)
    lifts = torch.linspace(-6, 6, 121, dtype=F64)
    masses, losses, pulls = [], [], []
    for lift in lifts:
        logits = torch.zeros(1, 2000, dtype=F64)
        logits[:, list(ids)] = lift
        logits.requires_grad_()
        loss = vocab_gate(logits, ids).sum
        loss.backward()
        masses.append(logits.softmax(1)[0, list(ids)].sum().item())
        losses.append(loss.item())
        pulls.append(logits.grad[0, :1000].sum().item())
    panel = Panel(
        "the gate",
        "softmax mass on coordinate tokens",
        (0, 1),
        (0, 4),
        [0, 0.25, 0.5, 0.75, 1],
        [0, 1, 2, 3, 4],
    )
    seen = [i for i, loss in enumerate(losses) if loss <= 4]
    panel.line("loss (nats)", [masses[i] for i in seen], [losses[i] for i in seen])
    panel.line("gradient on other tokens", [masses[i] for i in seen], [pulls[i] for i in seen])
    return picture("The gate is minus the log of the mass on coordinate tokens", [panel])


def giou() -> str:
    """Boxes that are apart, and boxes whose corners are swapped: where GIoU still has a slope."""
    true = torch.tensor([[0.3, 0.3, 0.5, 0.5]], dtype=F64)
    shifts = torch.linspace(-0.3, 0.5, 161, dtype=F64)
    moved = true + shifts[:, None] * torch.tensor([[1.0, 0, 1, 0]], dtype=F64)
    gious = generalized_iou(moved, true.expand_as(moved))
    overlap = (0.2 - shifts.abs()).clamp(min=0) * 0.2
    apart = Panel(
        "a box moves past the true one",
        "shift",
        (-0.3, 0.5),
        (-1, 1),
        [-0.2, 0, 0.2, 0.4],
        [-1, -0.5, 0, 0.5, 1],
    )
    apart.line("IoU", shifts.tolist(), (overlap / (0.08 - overlap)).tolist())
    apart.line("GIoU", shifts.tolist(), gious.tolist())

    ends = torch.linspace(0.0, 0.8, 161, dtype=F64)
    boxes = true.repeat(len(ends), 1)
    boxes[:, 2] = ends
    ordered = boxes.clone()
    ordered[:, 0], ordered[:, 2] = boxes[:, [0, 2]].amin(1), boxes[:, [0, 2]].amax(1)
    every = true.expand_as(boxes)
    swapped = Panel("its right side moves; left of 0.3 it is swapped", "x2 (x1 = 0.3, true x2 = 0.5)", (0, 0.8), (0, 2),
                    [0, 0.3, 0.5, 0.8], [0, 0.5, 1, 1.5, 2])  # fmt: skip
    swapped.line("1 - GIoU", ends.tolist(), [box_loss(b[None], true, 0.0, 1.0).sum.item() for b in boxes])
    swapped.line(
        "corners sorted first", ends.tolist(), (1 - generalized_iou(ordered, every)).tolist(), dash="5 3"
    )
    return picture("GIoU of boxes that are apart and of boxes with swapped corners", [apart, swapped])


def quantisation() -> str:
    """The error of a coordinate that went through the grid, and what it costs small boxes."""
    grid = CoordGrid()
    coords = torch.cat([torch.linspace(0, 0.004, 161, dtype=F64), torch.linspace(0.996, 1, 161, dtype=F64)])
    errors = (grid.dequantize(grid.quantize(coords)) - coords).to(F64) * grid.scale
    panels = []
    for title, part, low in (
        ("first bins", slice(0, 161), 0.0),
        ("last bins: 1 is clamped to bin 999", slice(161, None), 996.0),
    ):
        panel = Panel(
            title,
            "coordinate in thousandths",
            (low, low + 4),
            (-1, 1),
            [low + i for i in range(5)],
            [-1, -0.5, 0, 0.5, 1],
        )
        panel.line("error in bins", (coords[part] * 1000).tolist(), errors[part].tolist())
        panels.append(panel)
    draw = torch.Generator().manual_seed(0)
    sides = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    panel = Panel(
        "mean IoU after the grid",
        "side of a square in a 640-pixel image",
        (0, 64),
        (0.6, 1),
        [2, 16, 32, 48, 64],
        [0.6, 0.7, 0.8, 0.9, 1],
    )
    for name, coarse in (("1000 bins", CoordGrid()), ("256 bins", CoordGrid(256, 256))):
        means = []
        for side in sides:
            corner = torch.rand(2000, 2, generator=draw, dtype=F64) * (1 - side / 640) * 0.99
            boxes = torch.cat([corner, corner + side / 640], dim=1)
            back = coarse.dequantize(coarse.quantize(boxes)).to(F64)
            size = (
                (torch.minimum(boxes[:, 2:], back[:, 2:]) - torch.maximum(boxes[:, :2], back[:, :2]))
                .clamp(min=0)
                .prod(1)
            )
            both = (boxes[:, 2:] - boxes[:, :2]).prod(1) + (back[:, 2:] - back[:, :2]).prod(1) - size
            means.append((size / both).mean().item())
        # Below the axis a curve would leave its panel.
        seen = [i for i, mean in enumerate(means) if mean >= 0.6]
        panel.line(name, [sides[i] for i in seen], [means[i] for i in seen])
    return picture(
        "Quantisation error at both ends of the range, and IoU against the size of a box", [*panels, panel]
    )


PICTURES = {
    "soft-targets": soft_target_edges,
    "wasserstein": wasserstein,
    "gate": gate,
    "giou": giou,
    "quantisation": quantisation,
}


def main(folder: Path) -> None:
    """Write every picture into a folder."""
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
