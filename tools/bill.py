"""Puts a bill of materials (PEP 770, CycloneDX 1.5) into a wheel: the versions that it was tested with.

    uv run python tools/bill.py dist/coord_eval-0.2.0-py3-none-any.whl

The wheel is replaced by one with `sboms/coord-eval.cdx.json` in its dist-info, the same bytes each time.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def bill_of(name: str) -> bytes:
    """Return the bill of a member, from the resolution of this workspace, without time, serial number and hosts."""
    command = ["uv", "export", "--quiet", "--no-dev", "--format", "cyclonedx1.5", "--package", name]
    bill = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    del bill["serialNumber"], bill["metadata"]["timestamp"]
    for component in bill["components"]:
        component.pop("externalReferences", None)
    return json.dumps(bill, indent=1).encode()


def put(wheel: Path, bill: bytes) -> None:
    """Write the bill into the wheel, and into its RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        files = [(info, archive.read(info)) for info in archive.infolist()]
    (record, lines), *_ = [file for file in files if file[0].filename.endswith(".dist-info/RECORD")]
    folder = record.filename.rpartition("/")[0]
    name = f"{folder}/sboms/{folder.partition('-')[0].replace('_', '-')}.cdx.json"
    files = [(info, data) for info, data in files if info.filename not in (name, record.filename)]
    kept = [line for line in lines.decode().splitlines() if not line.startswith(f"{name},")]
    digest = base64.urlsafe_b64encode(hashlib.sha256(bill).digest()).rstrip(b"=").decode()
    info = zipfile.ZipInfo(name, record.date_time)
    info.external_attr, info.compress_type = record.external_attr, record.compress_type
    files += [(info, bill), (record, "\n".join([f"{name},sha256={digest},{len(bill)}", *kept, ""]).encode())]
    partial = wheel.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for info, data in files:
            archive.writestr(info, data)
    partial.replace(wheel)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        put(Path(argument), bill_of(Path(argument).name.partition("-")[0].replace("_", "-")))
