"""Measures passes a box and boxes per second of `evaluation.speed`, in processor time, against plain decoding.

    uv run python apps/trainer/benchmarks/fast_boxes.py runs/first-run [1 16 64] [--images 500]

Each batch of held-out images is answered in every way, one after the other, so that all ways meet the same load of the
machine. `passes` are calls of the language model behind the prompt, times the batch size, a box; `decoding` leaves out
what a prompt costs (image processor, vision tower, prompt, first token).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from coord_detect.answers.generate import answer_images
from coord_detect.answers.token_limit import token_limit
from coord_detect.model.card import as_trained
from coord_detect.model.checkpoint import open_checkpoint
from coord_detect.model.checkpoints import locate_model
from coord_trainer.config.run_config import load_run_config
from coord_trainer.data.shapes import draw_set
from coord_trainer.evaluation.score import headline, score_predictions


@dataclass
class Way:
    """One way of answering, and what it took."""

    name: str
    speed: str
    seconds: float = 0.0
    passes: int = 0
    answers: list[dict[str, Any]] = field(default_factory=list)


def main(
    run: Annotated[Path, typer.Argument(help="a run folder on generated shapes")],
    batches: Annotated[list[int] | None, typer.Argument(help="batch sizes")] = None,
    images: Annotated[int, typer.Option(help="held-out images of the run")] = 500,
    threads: Annotated[int, typer.Option(help="threads of torch")] = 1,
    grammar: Annotated[str, typer.Option(help="none, markers or names")] = "none",
) -> None:
    """Print a table for each batch size."""
    torch.set_num_threads(threads)
    folder = locate_model(run)
    words = ["evaluation.speed=exact", f"evaluation.decoding=[{{grammar: {grammar}}}]"]
    config = as_trained(load_run_config(run / "config.yaml", words, trains=False), folder)
    heldout = draw_set(config, "heldout", Path())
    heldout = heldout.select(heldout.instances[:images])
    opened = [heldout.image(index) for index in range(len(heldout))]
    loaded = open_checkpoint(folder, config)
    limit = token_limit(config, loaded.processor.tokenizer, heldout.words)
    names = set(heldout.words) if grammar == "names" else None
    calls = [0]

    def count(module: Any, given: Any) -> None:
        calls[0] += 1

    loaded.model.model.language_model.register_forward_pre_hook(count)

    def ask(way: Way, batch: Sequence[Any], tokens: int) -> list[dict[str, Any]]:
        decoding = config.evaluation.decoding[0]
        return answer_images(loaded, batch, config.data, decoding, tokens, names, speed=way.speed)

    for size in batches or [1, 16, 64]:
        ways, prompt = [Way("plain", "plain"), Way("exact", "exact")], Way("prompt", "plain")
        for way in ways:
            ask(way, opened[:size], limit)  # warm-up
        for start in range(0, len(opened), size):
            batch = opened[start : start + size]
            turn = (start // size) % len(ways)
            for way in [prompt, *ways[turn:], *ways[:turn]]:
                calls[0], began = 0, time.process_time()
                way.answers += ask(way, batch, 1 if way is prompt else limit)
                way.seconds += time.process_time() - began
                way.passes += (calls[0] - 1) * len(batch)
        _print(size, ways, prompt.seconds, config, heldout)


def _print(size: int, ways: Sequence[Way], prompt: float, config: Any, heldout: Any) -> None:
    print(f"\n{len(heldout)} images, {size} at a time, {1000 * prompt / len(heldout):.1f} ms a prompt\n")
    print("| way | passes a box | boxes/s | x plain | x plain, decoding | equal answers | AP | mean IoU |")
    print("|---|---|---|---|---|---|---|---|")
    first = ways[0]
    texts = [answer["text"] for answer in first.answers]
    for way in ways:
        boxes = sum(len(answer["coord_logprobs"]) // 4 for answer in way.answers)
        base = sum(len(answer["coord_logprobs"]) // 4 for answer in first.answers)
        rate, plain = boxes / way.seconds, base / first.seconds
        decoding = (boxes / (way.seconds - prompt)) / (base / (first.seconds - prompt))
        equal = sum(answer["text"] == text for answer, text in zip(way.answers, texts, strict=True))
        pairs = zip(heldout.instances, way.answers, strict=True)
        records = [
            {"image_id": i.image_id, "image": i.image, "width": i.width, "height": i.height, **a} for i, a in pairs
        ]
        evaluation = score_predictions(config, records, heldout, config.evaluation.decoding[0])
        print(
            f"| {way.name} | {way.passes / boxes:.2f} | {rate:.1f} | {rate / plain:.2f} | {decoding:.2f} | "
            f"{equal} of {len(texts)} | {headline(evaluation)['AP']:.3f} | {evaluation.mean_iou:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
