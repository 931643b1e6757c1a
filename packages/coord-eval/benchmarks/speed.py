"""Processor time and memory of scoring, as ratios to hotcoco and pycocotools in one run.

python packages/coord-eval/benchmarks/speed.py --help

Every measurement is a process of its own, from its start to its end, on the same files.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

LABELS = 80
SIZE = (640.0, 480.0)
OURS = "import sys; from coord_eval import score; print(score(sys.argv[1], sys.argv[2])['AP'])"
INTERVALS = "import sys; from coord_eval import score; print(score(*sys.argv[1:3], bootstrap=100)['AP'])"
HOTCOCO = """
import sys
from hotcoco import COCO, COCOeval
truth = COCO(sys.argv[1])
run = COCOeval(truth, truth.load_res(sys.argv[2]), "bbox")
run.evaluate(); run.accumulate(); run.summarize()
print(run.stats[0])
"""
PYCOCOTOOLS = HOTCOCO.replace("hotcoco", "pycocotools.cocoeval", 1).replace("load_res", "loadRes")
PYCOCOTOOLS = PYCOCOTOOLS.replace("import COCO, COCOeval", "import COCOeval\nfrom pycocotools.coco import COCO")


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 5_000,
    objects: Annotated[int, typer.Option(help="Number of objects.")] = 36_000,
    boxes: Annotated[int, typer.Option(help="Number of boxes of the results list.")] = 36_000,
    reference: Annotated[bool, typer.Option(help="Measure pycocotools too, which is slow.")] = False,
    texts: Annotated[bool, typer.Option(help="Measure the same boxes as text answers too.")] = False,
) -> None:
    """Measure `score`, `coord-eval score` with its report, intervals, and the peers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [str(folder / "truth.json"), str(folder / "results.json")]
        # The memory of this process counts as that of its children, so that another one makes the set.
        if (child := os.fork()) == 0:
            write(folder, images, objects, boxes)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit("the set was not made")
        command = ["--ground-truth", words[0], "--predictions", words[1], "--out", str(folder / "report")]
        rows = {
            f"hotcoco {version('hotcoco')}": ["-c", HOTCOCO, *words],
            "score()": ["-c", OURS, *words],
            "coord-eval score, report": ["-m", "coord_eval", "score", *command],
            "score(bootstrap=100)": ["-c", INTERVALS, *words],
        }
        if reference:
            rows[f"pycocotools {version('pycocotools')}"] = ["-c", PYCOCOTOOLS, *words]
        if texts:
            rows["score(), text answers"] = ["-c", OURS, words[0], str(folder / "texts.jsonl")]
        first: tuple[float, float] | None = None
        print(f"{images:,} images, {objects:,} objects, {boxes:,} boxes")
        for label, process in rows.items():
            seconds, memory = measured(process)
            first = first or (seconds, memory)
            ratios = f"x {seconds / first[0]:.2f}, x {memory / first[1]:.2f}"
            print(f"{label:28} {seconds:7.2f} s of processor time, {memory:6.0f} MB; {ratios}")


def write(folder: Path, images: int, objects: int, boxes: int) -> None:
    """Write `truth.json`, `results.json` and `texts.jsonl`."""
    truth, results = make(images, objects, boxes)
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "texts.jsonl").write_text("".join(as_texts(truth, results)))


def make(images: int, objects: int, boxes: int, seed: int = 0) -> tuple[dict, list[dict]]:
    """Return COCO ground truth and a results list, three quarters of it near an object."""
    draw = np.random.default_rng(seed)
    image_N, label_N = draw.integers(0, images, objects), draw.integers(0, LABELS, objects)
    sides_N2 = draw.uniform(10, 200, (objects, 2)).round(2)
    boxes_N4 = np.c_[(draw.uniform(0, 1, (objects, 2)) * (SIZE - sides_N2)).round(2), sides_N2]
    areas_N = (sides_N2[:, 0] * sides_N2[:, 1]).tolist()
    columns = zip(image_N.tolist(), label_N.tolist(), boxes_N4.tolist(), areas_N, strict=True)
    truth = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "width": 640, "height": 480} for i in range(images)],
        "categories": [{"id": k, "name": f"label {k}"} for k in range(LABELS)],
        "annotations": [
            {"id": n, "image_id": i, "category_id": k, "bbox": box, "area": area, "iscrowd": 0}
            for n, (i, k, box, area) in enumerate(columns)
        ],
    }
    near = draw.integers(0, objects, boxes * 3 // 4)
    found = np.abs(boxes_N4[near] + draw.normal(0, 5, (len(near), 4))) + 1
    strays = boxes - len(near)
    stray = np.c_[draw.uniform(0, 400, (strays, 2)), draw.uniform(5, 80, (strays, 2))]
    of_image = np.r_[image_N[near], draw.integers(0, images, strays)].tolist()
    of_label = np.r_[label_N[near], draw.integers(0, LABELS, strays)].tolist()
    rows = zip(of_image, of_label, np.r_[found, stray].round(2).tolist(), draw.random(boxes).tolist(), strict=True)
    return truth, [{"image_id": i, "category_id": k, "bbox": b, "score": round(s, 5)} for i, k, b, s in rows]


def as_texts(truth: dict, results: list[dict]) -> list[str]:
    """Return a line of `predictions.jsonl` for each image, with its boxes in thousandths."""
    by_image: dict[int, list[dict]] = {image["id"]: [] for image in truth["images"]}
    for row in results:
        x, y, width, height = row["bbox"]
        corners = zip((x, y, x + width, y + height), SIZE * 2, strict=True)
        bins = [min(max(round(1000 * value / side), 0), 999) for value, side in corners]
        item = {"bbox_2d": bins, "label": f"label {row['category_id']}", "confidence": row["score"]}
        by_image[row["image_id"]].append(item)
    return [json.dumps({"image_id": image, "text": json.dumps(items)}) + "\n" for image, items in by_image.items()]


def measured(words: list[str]) -> tuple[float, float]:
    """Return the seconds of processor time and the largest memory in MB of a Python process."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{words[:3]}: ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


if __name__ == "__main__":
    typer.run(main)
