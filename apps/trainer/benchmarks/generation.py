"""Measures boxes per second of a trained model: in this process, without and with the grammar, and from a server.

    uv run python apps/trainer/benchmarks/generation.py runs/first-run [1 16 64] [--images 128]
    uv run python apps/trainer/benchmarks/generation.py runs/first-run --endpoint http://localhost:8000/v1 --name tiny

Rounds alternate between all variants; the median round is printed. `grammar` is the time inside the grammar relative to
the remaining time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from PIL import Image

from coord_detect.answers import generate
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.model.card import as_trained
from coord_detect.model.checkpoints import locate_model
from coord_trainer import Detector
from coord_trainer.config.run_config import load_run_config


class Timed:
    """A grammar that adds up the seconds spent in it."""

    seconds = 0.0

    def __init__(self, inner: Callable) -> None:
        self.inner = inner

    def __call__(self, input_ids, scores):
        start = time.perf_counter()
        result = self.inner(input_ids, scores)
        Timed.seconds += time.perf_counter() - start
        return result


def main(
    model: Annotated[Path, typer.Argument(help="a run folder or checkpoint")],
    batches: Annotated[list[int] | None, typer.Argument(help="batch sizes, or numbers of concurrent requests")] = None,
    images: Annotated[int, typer.Option(help="held-out images of the run")] = 128,
    rounds: Annotated[int, typer.Option(help="rounds whose median is printed")] = 3,
    endpoint: Annotated[str | None, typer.Option(help="URL of a server of the same model")] = None,
    name: Annotated[str, typer.Option(help="the model as the server calls it")] = "tiny",
) -> None:
    """Print a table of boxes per second."""
    paths = sorted((model / "data" / "heldout").glob("*"))[:images]
    opened = [Image.open(path).convert("RGB") for path in paths]
    ways: dict[str, AnsweringModel] = {}
    for grammar in ("none", "markers"):
        words = [f"evaluation.decoding.grammar={grammar}"]
        if endpoint is None:
            ways[grammar] = AnsweringModel.load(model, load_run_config(None, words, trains=False))
    inner = generate.CoordGrammar.for_tokenizer
    generate.CoordGrammar.for_tokenizer = lambda *given, **named: Timed(inner(*given, **named))  # type: ignore[method-assign]
    print(f"{len(opened)} images\n\n| at a time | way | boxes/s | images/s | grammar, % |\n|---|---|---|---|---|")
    for size in batches or [1, 16, 64]:
        if endpoint is not None:
            ways = {"served": _served(model, endpoint, name, size)}
        seconds: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        boxes = {}
        for _ in range(rounds):
            for way, detector in ways.items():
                Timed.seconds, start = 0.0, time.perf_counter()
                boxes[way] = sum(map(len, _answers(detector, opened, size)))
                seconds[way].append((time.perf_counter() - start, Timed.seconds))
        for way, taken in seconds.items():
            total = median(t for t, _ in taken)
            share = median(100 * inside / (t - inside) for t, inside in taken)
            print(
                f"| {size} | {way} | {boxes[way] / total:.1f} | {len(opened) / total:.1f} | {share:.1f} |", flush=True
            )


def _answers(detector: AnsweringModel, images: Sequence[Image.Image], size: int) -> list:
    return list(Detector(detector).predict(list(images), batch=size, progress=False))


def _served(model: Path, endpoint: str, name: str, concurrency: int) -> AnsweringModel:
    from coord_detect.answers.token_limit import token_limit_without_tokenizer
    from coord_detect.served.endpoint import EndpointEngine

    config = as_trained(load_run_config(None, [], trains=False), locate_model(model))
    data = config.data
    limit = token_limit_without_tokenizer(config)
    engine = EndpointEngine((endpoint,), name, data.prompt, None, data.markers, limit, concurrency=concurrency)
    return AnsweringModel(engine, config)


if __name__ == "__main__":
    typer.run(main)
