"""Measures coord-detect beside what it replaces, in processor time (user and system), all ratios within one run.

    uv run python benchmarks/detect.py runs/first-run [--rounds 5]

- `--help` of `coord-detect predict` beside Python alone; a call with 100 images to a server that answers at once.
- Start to first box of `coord-detect predict` beside a script of AutoModel, AutoProcessor and `generate`.
- 64 images after opening: `Detector.predict` and `generate` in batches of 8, with one thread and as torch has them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "packages" / "coord-detect" / "tests" / "helpers"))
PROGRAM = str(Path(sys.executable).parent / "coord-detect")
IMAGES, BATCH, CALLS = 64, 8, 100


def bare(folder: str) -> tuple[Any, Any, Callable[[list[Any]], list[str]]]:
    """Open a checkpoint as a script without this package does; returns model, processor and what answers a batch."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    card = json.loads((Path(folder) / "coordexp.json").read_text())
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype="float32").eval()
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": card["prompt"]}]}
    prompt = processor.apply_chat_template([turn], add_generation_prompt=True)

    def answers(images: list[Any]) -> list[str]:
        given = processor(
            text=[prompt] * len(images), images=images, return_tensors="pt", padding=True, padding_side="left"
        )
        with torch.inference_mode():
            ids_BT = model.generate(**given, max_new_tokens=300, do_sample=False)
        new_BT = ids_BT[:, given["input_ids"].shape[1] :]
        return [processor.tokenizer.decode(row).split("<|im_end|>")[0] for row in new_BT]

    return model, processor, answers


def spent(words: list[str]) -> tuple[float, float]:
    """Return processor and wall time of a command in seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def in_turn(rounds: int, ways: dict[str, Callable[[], tuple[float, float]]]) -> None:
    """Print processor and wall time of each way in rounds taken in turn, and its ratio to the first way."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            taken[name].append(way())
    first = None
    for name, pairs in taken.items():
        cpu, wall = zip(*pairs, strict=True)
        first = first or (min(cpu), median(cpu))
        print(
            f"{name}: processor {min(cpu):.3f} to {max(cpu):.3f} s, median {median(cpu):.3f}, wall {min(wall):.2f} s; "
            f"x {min(cpu) / first[0]:.3f} by the least, x {median(cpu) / first[1]:.3f} by the median",
            flush=True,
        )


def answer_once(model: str, paths: list[Path], way: str) -> None:
    """Answer the images one way, after a first batch, and print processor time, wall time and answers as JSON."""
    from PIL import Image

    images = [Image.open(path).convert("RGB") for path in paths]
    if way == "generate":
        answers = bare(model)[2]
    else:
        from coord_detect import Detector

        detector = Detector(model)

        def answers(images: list[Any]) -> list[str]:
            return [found.text for found in detector.predict(images, progress=False)]

    answers(images[:BATCH])
    cpu, wall = time.process_time(), time.perf_counter()
    texts = [text for start in range(0, IMAGES, BATCH) for text in answers(images[start : start + BATCH])]
    print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall, texts]))


def main() -> None:
    """Measure one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the run of a trained model, with held-out images")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["help", "client", "start", "images"])
    parser.add_argument("--way", choices=["generate", "detector"], help="answer the images this way alone")
    options = parser.parse_args()
    from fakes import TEXT, chat_reply, served

    from coord_detect.model.checkpoints import locate_model

    model = str(locate_model(options.run))
    paths = sorted((options.run / "data").glob("**/heldout/**/*.png"))[:CALLS]
    if options.way:
        return answer_once(model, paths[:IMAGES], options.way)
    scratch = tempfile.mkdtemp()
    calls = iter(range(10**6))

    def predict(*words: object) -> Callable[[], tuple[float, float]]:
        return lambda: spent([PROGRAM, "predict", *map(str, words), "--out", f"{scratch}/{next(calls)}", "--no-draw"])

    if "help" in options.only:
        in_turn(
            options.rounds,
            {
                "python -c pass": lambda: spent([sys.executable, "-c", "pass"]),
                "predict --help": lambda: spent([PROGRAM, "predict", "--help"]),
            },
        )
    if "client" in options.only:
        with served(lambda number, request: (200, chat_reply(TEXT))) as (url, _):
            in_turn(options.rounds, {f"{CALLS} images of a server": predict(*paths, "--endpoint", url, "--name", "m")})
    if "start" in options.only:
        code = "import sys; from PIL import Image; from detect import bare\n"
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {code}"
        code += "print(bare(sys.argv[1])[2]([Image.open(sys.argv[2]).convert('RGB')]))"
        script = [sys.executable, "-c", code, model, str(paths[0])]
        in_turn(options.rounds, {"bare script": lambda: spent(script), "predict": predict(model, paths[0])})
    if "images" in options.only:
        for threads in (1, 0):
            print(f"{IMAGES} images after opening, {threads or 'as many as torch takes'} threads")
            texts: dict[str, Any] = {}

            def alone(way: str, threads: int = threads, texts: dict[str, Any] = texts) -> tuple[float, float]:
                words = [sys.executable, __file__, str(options.run), "--way", way]
                limit = {"OMP_NUM_THREADS": "1"} if threads else {}
                kept = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
                done = subprocess.run(words, check=True, capture_output=True, text=True, env=kept | limit)
                cpu, wall, texts[way] = json.loads(done.stdout.splitlines()[-1])
                return cpu, wall

            in_turn(options.rounds, {"generate": partial(alone, "generate"), "detector": partial(alone, "detector")})
            same = sum(a == b for a, b in zip(texts["generate"], texts["detector"], strict=True))
            print(f"{same} of {IMAGES} answers are equal")


if __name__ == "__main__":
    main()
