"""Size of a report over 5,000 photographs and 100,000 boxes, the time to write it, and the time a browser opens it in.

The photographs given are repeated. The last line needs an installed Chromium.
"""

from __future__ import annotations

import runpy
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from coord_codec import Instance
from coord_eval import score

ROOT = Path(__file__).parents[3]


def measure(
    photographs: Annotated[Path, typer.Argument(help="A folder of JPEG files.")],
    images: Annotated[int, typer.Option(help="Number of images.")] = 5000,
    shown: Annotated[int, typer.Option(help="Number of images on the page.")] = 200,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("runs/large-report"),
) -> None:
    """Write the report and print size and times."""
    rng = np.random.default_rng(0)
    files = sorted(photographs.glob("*.jpg"))
    labels = [f"label {k}" for k in range(80)]
    truth, results = [], []
    for i in range(images):
        corners = rng.uniform(0, 0.7, (20, 2))
        sides = rng.uniform(0.05, 0.3, (20, 2))
        names = rng.choice(labels, 20)
        boxes = np.concatenate([corners, corners + sides], axis=1)
        objects = [{"desc": n, "bbox": b} for n, b in zip(names.tolist(), boxes.tolist(), strict=True)]
        truth.append(Instance(image=f"{i}.jpg", image_id=i, width=640, height=480, objects=objects))
        shifted = np.clip(boxes + rng.normal(0, 0.03, boxes.shape), 0, 0.999)
        text = "".join(
            f"<|object_ref_start|>{n}<|object_ref_end|><|box_start|>"
            f"{''.join(f'<|coord_{int(1000 * v)}|>' for v in b)}<|box_end|>"
            for n, b in zip(names, shifted, strict=True)
        )
        results.append({"image_id": i, "image": f"{i}.jpg", "width": 640, "height": 480, "text": text})
    evaluation = score(truth, results)
    _ = evaluation.to_json()  # all metrics, so that the next time is that of the page
    print(f"{images:,} images, {len(evaluation.detections):,} boxes, {shown} images on the page", flush=True)
    start = time.perf_counter()
    page = evaluation.write_report(
        out, image_root=lambda name: files[int(name.split(".")[0]) % len(files)], max_overlays=shown
    )

    print(f"written in {time.perf_counter() - start:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
    browser = runpy.run_path(str(ROOT / "tests" / "chromium.py"))
    if browser["BROWSER"] is None:
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        chromium = browser["Chromium"](Path(profile))
        try:
            seconds = sorted(chromium.open(page) for _ in range(3))
        finally:
            chromium.close()
    print(f"opened in {', '.join(f'{s:.2f}' for s in seconds)} s")


if __name__ == "__main__":
    typer.run(measure)
