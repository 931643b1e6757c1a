"""The annotation formats that can be read; `data/formats` has a module for each."""

from typing import Literal

Format = Literal[
    "auto", "coco", "jsonl", "lvis", "voc", "yolo", "csv", "vg", "openimages", "refcoco", "swift", "qwen", "qwen-pixels"
]
