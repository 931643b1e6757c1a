"""Answers that `box_reward` rewards in a second: 16 images with 8 answers each, as in a step of GRPO."""

from __future__ import annotations

import time

import numpy as np
import typer

from coord_codec import Instance, encode_target
from coord_eval.rewards import REWARDS, box_reward

LABELS = ("cat", "dog", "car", "person")


def draw(rng: np.random.Generator, count: int) -> list[dict]:
    """Return random objects."""
    corners, sizes = rng.random((count, 2)) * 0.6, 0.1 + rng.random((count, 2)) * 0.25
    boxes = np.concatenate([corners, corners + sizes], axis=1)
    return [{"desc": str(rng.choice(LABELS)), "bbox": box.tolist()} for box in boxes]


def main() -> None:
    """Print a row for each number of objects."""
    rng = np.random.default_rng(0)
    for count in (3, 10, 30):
        truths = [draw(rng, count) for _ in range(16)]
        texts = [encode_target(Instance(image="a.png", objects=truth)) for truth in truths]
        answers, repeated = ([item for item in items for _ in range(8)] for items in (texts, truths))
        rates = []
        for kind in ("f1", dict.fromkeys(REWARDS, 1.0)):
            seconds = []
            for _ in range(5):
                begun = time.perf_counter()
                box_reward(answers, repeated, kind, format="qwen")
                seconds.append(time.perf_counter() - begun)
            rates.append(f"{len(answers) / np.median(seconds):,.0f}")
        print(f"{count} objects: {rates[0]} answers a second by f1, {rates[1]} by all kinds")


if __name__ == "__main__":
    typer.run(main)
