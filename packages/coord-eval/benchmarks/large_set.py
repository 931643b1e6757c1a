"""Time and memory for a set of COCO's size: 5,000 images, 80 labels, 500,000 detections.

python packages/coord-eval/benchmarks/large_set.py --help
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from coord_eval import load_ground_truth, resample, score
from coord_eval.intake.collecting import collect_results
from coord_eval.intake.predictions import from_records
from coord_eval.metrics.coco import BACKENDS, coco_scores

IMAGES, LABELS, OBJECTS, DETECTIONS = 5_000, 80, 36_000, 500_000


def make(seed: int = 0) -> tuple[dict, list[dict]]:
    """Return COCO ground truth and a results list, half of it near an object."""
    draw = np.random.default_rng(seed)
    image, label = draw.integers(0, IMAGES, OBJECTS), draw.integers(0, LABELS, OBJECTS)
    sides = draw.uniform(10, 200, (OBJECTS, 2))
    boxes = np.c_[draw.uniform(0, 1, (OBJECTS, 2)) * ([640.0, 480.0] - sides), sides]
    truth = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "width": 640, "height": 480} for i in range(IMAGES)],
        "categories": [{"id": k, "name": f"label {k}"} for k in range(LABELS)],
        "annotations": [
            {"id": n, "image_id": int(image[n]), "category_id": int(label[n]), "bbox": boxes[n].tolist()}
            for n in range(OBJECTS)
        ],
    }
    near = draw.integers(0, OBJECTS, DETECTIONS // 2)
    found = np.abs(boxes[near] + draw.normal(0, 5, (len(near), 4))) + 1
    stray = np.c_[draw.uniform(0, 400, (DETECTIONS - len(near), 2)), draw.uniform(5, 80, (DETECTIONS - len(near), 2))]
    images = np.r_[image[near], draw.integers(0, IMAGES, len(stray))].tolist()
    labels = np.r_[label[near], draw.integers(0, LABELS, len(stray))].tolist()
    rows = zip(images, labels, np.r_[found, stray].tolist(), draw.random(DETECTIONS).tolist(), strict=True)
    return truth, [{"image_id": i, "category_id": k, "bbox": b, "score": s} for i, k, b, s in rows]


def run_command(backend: str) -> None:
    """Time `coord-eval score` as a user runs it: start, reading, scoring, report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth, results = make()
        (folder / "truth.json").write_text(json.dumps(truth))
        (folder / "results.json").write_text(json.dumps(results))
        del truth, results
        words = ["--ground-truth", str(folder / "truth.json"), "--predictions", str(folder / "results.json")]
        words += ["--out", str(folder / "report"), "--backend", backend]
        seconds, cpu = _time_process(["-m", "coord_eval", "score", *words])
        ap = json.loads((folder / "report" / "evaluation.json").read_text())["coco"]["AP"]
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        print(f"coord-eval score, {backend}: {seconds:.1f} s ({cpu:.1f} s of CPU), peak {peak:.2f} GB, AP {ap:.4f}")
        if backend == "faster-coco-eval":
            seconds, alone = _time_process(["-c", _ALONE, words[1], words[3]])
            print(
                f"{backend} alone, same files: {seconds:.1f} s ({alone:.1f} s of CPU); ratio {cpu / alone:.2f} of CPU"
            )


_ALONE = """
import sys
from faster_coco_eval import COCO, COCOeval_faster
truth = COCO(sys.argv[1])
COCOeval_faster(truth, truth.loadRes(sys.argv[2]), "bbox").run()
"""


def _time_process(words: list[str]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a Python process from its start to its end."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, cpu


def compare_backends() -> None:
    """Time one evaluation of the twelve COCO metrics by each backend."""
    truth, results = make()
    ground_truth = load_ground_truth(truth)
    detections = collect_results(ground_truth, from_records(results)).detections
    for backend in reversed(BACKENDS):
        start = time.perf_counter()
        ap = coco_scores(ground_truth, detections, backend).summary["AP"]
        print(f"one evaluation, {backend}: {time.perf_counter() - start:.1f} s, AP {ap:.4f}")


def time_score() -> None:
    """Time `score` with the fast backend beside faster-coco-eval alone, on the same records in one process."""
    from faster_coco_eval import COCO, COCOeval_faster

    truth, results = make()
    start = time.process_time()
    truth_index = COCO(truth)
    evaluator = COCOeval_faster(truth_index, truth_index.loadRes(results), "bbox")
    evaluator.run()
    alone = time.process_time() - start
    truth, results = make()
    start = time.process_time()
    ap = score(truth, results, backend="faster-coco-eval")["AP"]
    ours = time.process_time() - start
    print(f"score: {ours:.1f} s of CPU, faster-coco-eval alone {alone:.1f} s, ratio {ours / alone:.2f}, AP {ap:.4f}")


def time_intervals(resamples: int = 16) -> None:
    """Time the bootstrap of every metric, by the resample."""
    truth, results = make()
    evaluation = score(truth, results, backend="faster-coco-eval")
    start = time.perf_counter()
    resample(evaluation, 1)
    first = time.perf_counter()
    resample(evaluation, 1 + resamples)
    seconds = (time.perf_counter() - first - (first - start)) / resamples
    print(f"intervals of every metric: {first - start:.1f} s and {1000 * seconds:.0f} ms a resample")


def main(
    what: Annotated[
        Literal["faster-coco-eval", "pycocotools", "backends", "score", "intervals"],
        typer.Argument(help="The backend of the whole command, or the part to time."),
    ] = "faster-coco-eval",
) -> None:
    """Time the whole command, one evaluation by each backend, or the bootstrap, on a set of COCO's size."""
    if what in BACKENDS:
        run_command(what)
    else:
        {"backends": compare_backends, "score": time_score, "intervals": time_intervals}[what]()


if __name__ == "__main__":
    typer.run(main)
