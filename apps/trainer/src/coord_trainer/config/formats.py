"""The formats of annotations that can be read; `data/formats` has a file for each."""

from typing import Literal

Format = Literal[
    "auto", "coco", "jsonl", "lvis", "voc", "yolo", "csv", "vg", "openimages", "refcoco", "swift", "qwen", "qwen-pixels"
]
