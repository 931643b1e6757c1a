"""Measures coord-detect beside what it replaces, in processor time (user and system), all ratios within one run.

    uv run python benchmarks/detect.py runs/first-run [--rounds 5]

- `--help` of `coord-detect predict` beside Python alone; a call with 100 images to a server that answers at once.
- Start to first box of `coord-detect predict` beside a script of AutoModel, AutoProcessor and `generate`.
- 64 images after opening: `Detector.predict` and `generate` in batches of 8, whose answers must be equal.
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


def in_process(work: Callable[[], Any]) -> tuple[float, float]:
    """Return processor and wall time of a call in seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    """Measure one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the run of a trained model, with held-out images")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["help", "client", "start", "images"])
    options = parser.parse_args()
    import torch
    from fakes import TEXT, chat_reply, served
    from PIL import Image

    from coord_detect import Detector
    from coord_detect.model.checkpoints import locate_model

    torch.set_num_threads(1)
    model = str(locate_model(options.run))
    paths = sorted((options.run / "data").glob("**/heldout/**/*.png"))[:CALLS]
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
        images = [Image.open(path).convert("RGB") for path in paths[:IMAGES]]
        _, _, answers = bare(model)
        detector, told = Detector(model), {}

        def by_generate() -> None:
            told["generate"] = [text for n in range(0, IMAGES, BATCH) for text in answers(images[n : n + BATCH])]

        def by_detector() -> None:
            told["detector"] = [found.text for found in detector.predict(images, progress=False)]

        in_turn(
            options.rounds,
            {
                f"{IMAGES} images, generate": lambda: in_process(by_generate),
                "Detector": lambda: in_process(by_detector),
            },
        )
        same = sum(a == b for a, b in zip(told["generate"], told["detector"], strict=True))
        print(f"{same} of {IMAGES} answers are equal")


if __name__ == "__main__":
    main()
