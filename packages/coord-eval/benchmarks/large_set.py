"""How long and how much memory does a set of COCO's size take: 5,000 pictures, 80 labels, 500,000 detections?

Run: python benchmarks/large_set.py [pycocotools|faster-coco-eval]
"""

import resource
import sys
import time

import numpy as np

from coord_eval import score

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
    stray = np.c_[
        draw.uniform(0, 400, (DETECTIONS - len(near), 2)), draw.uniform(5, 80, (DETECTIONS - len(near), 2))
    ]
    images = np.r_[image[near], draw.integers(0, IMAGES, len(stray))].tolist()
    labels = np.r_[label[near], draw.integers(0, LABELS, len(stray))].tolist()
    rows = zip(images, labels, np.r_[found, stray].tolist(), draw.random(DETECTIONS).tolist(), strict=True)
    return truth, [{"image_id": i, "category_id": k, "bbox": b, "score": s} for i, k, b, s in rows]


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else "faster-coco-eval"
    truth, results = make()
    start = time.perf_counter()
    evaluation = score(truth, results, backend=backend)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{backend}: {seconds:.1f} s, peak {peak:.2f} GB, AP {evaluation.coco['AP']:.4f}")


if __name__ == "__main__":
    main()
