"""Recognises annotation files of other tools by their beginning, so that a refusal can name the tool."""

from __future__ import annotations

import os
import re
from pathlib import Path

ADVICE = "which is not read here; convert it to COCO JSON or instance JSON lines"
"""What a refusal says behind the name of the tool."""
_HEAD = 8192
_NUMBER = r"-?[0-9.]+"
_TOOLS = {
    "SA-1B of SAM": r'"image"\s*:\s*\{[^{}]*"image_id".*|.*"predicted_iou"',
    "CVAT video XML": r"\s*(?:<\?.*?\?>\s*)?<annotations>.*<track\b",
    "CVAT image XML": r"\s*(?:<\?.*?\?>\s*)?<annotations>.*<image\b",
    "LabelMe XML": r"\s*(?:<\?.*?\?>\s*)?<annotation>.*<polygon>",
    "Pascal VOC XML": r"\s*(?:<\?.*?\?>\s*)?<annotation>.*<bndbox>",
    "DOTA": rf"imagesource:|gsd:|(?:{_NUMBER} ){{8}}(?:[\w-]+ [012]|[A-Za-z][\w-]*)\s*(?:\n|\Z)",
    "KITTI": rf"[A-Za-z_][\w-]*(?: [A-Za-z_][\w-]*)* {_NUMBER} -?[0-9](?: {_NUMBER}){{12,13}}\s*(?:\n|\Z)",
    "VisDrone": r"(?:[0-9]+,){4}[01],(?:[0-9]|1[01]),[01],[0-2],?\s*\n",
    "MOT": rf"[0-9]+,\s?-?[0-9]+,(?:\s?{_NUMBER},){{4,7}}\s?{_NUMBER}\s*\n",
    "ICDAR": rf"(?:{_NUMBER},\s?){{8}}[^\n]",
    "WIDER FACE": r"[^\n]+\.jpg\n[0-9]+\n(?:[0-9]+ ){9}[0-9]+",
    "Cartucho's mAP": rf"[^\s,]*[A-Za-z][^\s,]*(?: {_NUMBER}){{4,5}}(?: difficult)?\s*\n",
    "YOLO labels": rf"[0-9]+(?: {_NUMBER}){{4,}}\s*\n",
}


def tool_of(path: str | os.PathLike[str]) -> str:
    r"""Return the tool or data set that writes annotations as a file begins, "" for none that is known.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "1.txt"
        >>> _ = path.write_text("Car 0.00 0 -1.57 614.2 181.7 727.3 284.7 1.57 1.73 4.15 1.00 1.75 13.22 1.62\n")
        >>> tool_of(path)
        'KITTI'
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD).decode("utf-8-sig", "replace").replace("\r\n", "\n")
    except OSError:
        return ""
    return next((name for name, begins in _TOOLS.items() if re.match(begins, head, re.DOTALL)), "")
