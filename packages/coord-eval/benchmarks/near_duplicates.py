"""What fusing near-duplicates brings: generated answers that state each object several times, in crowded images.

python packages/coord-eval/benchmarks/near_duplicates.py
"""

import time

import numpy as np
import typer

from coord_eval import AnswerSettings, score

METHODS = (None, "nms:0.5", "nms:0.7", "nms:0.85", "wbf:0.55", "wbf:0.7")


def make(images: int, objects: int, copies: float, seed: int = 0) -> tuple[dict, list[dict]]:
    """Return COCO ground truth of one label on a grid of touching and overlapping objects, and answers.

    A copy of a box is moved by 4 % of its sides; nine in ten objects are found, and one box in ten is a stray one. A
    score is higher where a box is nearer, with noise.
    """
    draw = np.random.default_rng(seed)
    image_N = np.repeat(np.arange(images), objects)
    side = 1000 / np.sqrt(objects)
    centre_N2 = draw.uniform(side / 2, 1000 - side / 2, (len(image_N), 2))
    sides_N2 = side * draw.uniform(0.5, 1.1, (len(image_N), 2))
    truth_N4 = np.c_[centre_N2 - sides_N2 / 2, sides_N2]
    times_N = np.where(draw.random(len(image_N)) < 0.9, 1 + draw.poisson(copies, len(image_N)), 0)
    which = np.repeat(np.arange(len(image_N)), times_N)
    error = draw.normal(0, 0.04, (len(which), 4))
    found = truth_N4[which] + error * np.tile(sides_N2[which], 2)
    strays = len(image_N) // 10
    stray = np.c_[draw.uniform(0, 1000 - side, (strays, 2)), side * draw.uniform(0.5, 1.1, (strays, 2))]
    score_found = np.clip(0.9 - 3 * np.abs(error).mean(axis=1) + draw.normal(0, 0.1, len(which)), 0.01, 1)
    image = np.r_[image_N[which], draw.integers(0, images, strays)].tolist()
    boxes = np.r_[found, stray].tolist()
    scores = np.r_[score_found, np.clip(draw.normal(0.4, 0.15, strays), 0.01, 1)].tolist()
    rows = zip(image, boxes, scores, strict=True)
    truth = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "width": 1000, "height": 1000} for i in range(images)],
        "categories": [{"id": 1, "name": "person"}],
        "annotations": [
            {"id": n, "image_id": int(i), "category_id": 1, "bbox": box}
            for n, (i, box) in enumerate(zip(image_N, truth_N4.tolist(), strict=True))
        ],
    }
    return truth, [{"image_id": i, "category_id": 1, "bbox": b, "score": s} for i, b, s in rows]


def main(images: int = 200, objects: int = 40, seed: int = 0) -> None:
    """Print a table of each method for several numbers of copies."""
    print("| copies an object | fused by | AP | AP75 | precision | recall | F1 | boxes | seconds |")
    for copies in (0.0, 0.3, 2.0):
        truth, results = make(images, objects, copies, seed)
        for method in METHODS:
            start = time.perf_counter()
            evaluation = score(truth, results, answers=AnswerSettings(fuse=method))
            seconds = time.perf_counter() - start
            rates = " | ".join(f"{evaluation.detection['0.5'][rate]:.3f}" for rate in ("precision", "recall", "f1"))
            print(
                f"| {copies:g} | {method or 'nothing'} | {evaluation['AP']:.3f} | {evaluation['AP75']:.3f} | {rates} | "
                f"{len(evaluation.detections)} | {seconds:.1f} |"
            )


if __name__ == "__main__":
    typer.run(main)
