"""Writes with tools that need torch, and reads our export with them; runs where torch is, beside the other tools.

    python torch_tools.py FOLDER SITE-PACKAGES

FOLDER has `truth.json` and our export `coco.json`. It prints the labels and boxes of each image, as torchmetrics reads
both.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path

sys.path.append(sys.argv[2])  # behind the packages of this environment, which has torch

import torch
from torchmetrics.detection import MeanAveragePrecision


def given(path: Path) -> list[dict[str, torch.Tensor]]:
    """Return the objects of each image of a COCO file as the metric takes them."""
    document = json.loads(path.read_text())
    of_image = [[row for row in document["annotations"] if row["image_id"] == i["id"]] for i in document["images"]]
    corners = [[[x, y, x + w, y + h] for x, y, w, h in (row["bbox"] for row in rows)] for rows in of_image]
    return [
        {
            "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
            "labels": torch.tensor([row["category_id"] for row in rows], dtype=torch.int64),
            "scores": torch.full((len(rows),), 0.5),
        }
        for boxes, rows in zip(corners, of_image, strict=True)
    ]


def read(target: Path, results: Path) -> list[list[list[float]]]:
    """Return what the metric reads of a COCO file."""
    _, truth = MeanAveragePrecision().coco_to_tm(str(results), str(target))
    return [[[int(n), *box] for n, box in zip(row["labels"], row["boxes"].tolist(), strict=True)] for row in truth]


def write_with_ultralytics(root: Path) -> None:
    """Convert the truth with a second outline, whose two parts are one object, to YOLO labels."""
    os.environ |= {"YOLO_CONFIG_DIR": str(root), "YOLO_OFFLINE": "1"}  # no settings in the user's folder, no requests
    from ultralytics.data.converter import convert_coco

    document = json.loads((root / "truth.json").read_text())
    parts = [[10, 20, 20, 20, 20, 60, 10, 60], [25, 20, 40, 20, 40, 60, 25, 60]]
    document["annotations"][0]["segmentation"] = parts
    (root / "ultralytics").mkdir()
    (root / "ultralytics" / "a.json").write_text(json.dumps(document))
    for name, use_segments in (("ultralytics_yolo", False), ("ultralytics_parts", True)):
        out = root / "written" / name
        convert_coco(str(root / "ultralytics"), save_dir=str(out), use_segments=use_segments, cls91to80=False)
        shutil.move(out / "labels" / "a", out / "moved")  # beside the images, as its users do
        shutil.rmtree(out / "labels")
        (out / "moved").rename(out / "labels")
        shutil.copytree(root / "images", out / "images", dirs_exist_ok=True)
        names = "{2: cat, 6: dog}" if use_segments else "[cat, dog]"
        (out / "data.yaml").write_text(f"train: images\nnames: {names}\n")


def main() -> None:
    """Write, read and print."""
    root = Path(sys.argv[1])
    with contextlib.redirect_stdout(io.StringIO()):
        write_with_ultralytics(root)
    out = root / "written" / "torchmetrics_coco"
    out.mkdir(parents=True)
    annotations = json.loads((root / "coco.json").read_text())["annotations"]
    (root / "results.json").write_text(json.dumps(annotations))
    with contextlib.redirect_stdout(io.StringIO()):
        metric, images = MeanAveragePrecision(), given(root / "truth.json")
        metric.update(images, images)
        metric.tm_to_coco(str(out / "a"))
        again = read(out / "a_target.json", out / "a_preds.json")
        exported = read(root / "coco.json", root / "results.json")
    print(json.dumps({"again": again, "exported": exported}))


if __name__ == "__main__":
    main()
