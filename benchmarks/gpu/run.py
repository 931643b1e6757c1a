"""Runs all measurements on a GPU one after another, and prints one Markdown page.

    python benchmarks/gpu/run.py [exactness objective ...] [--quick] [--out FILE] [--device cpu]

Needs about 25 minutes on one H200; every item can be run by itself. For a machine without network pack.py gathers the
checkout and its wheels. `--device cpu --quick` tries the commands without a GPU. The output of an item that fails or
takes too long is kept, and the next item starts. With `--out` the page is written after each item, and the same command
continues after the items that have finished; the rows of an item that is being measured are in a file beside it.
"""

import os
import re
import subprocess
import sys
import threading
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from measure import Device, DeviceOption, Quick

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TESTS = sorted(str(path) for path in ROOT.glob("*/*/tests/**/test_*_cuda.py"))
PYTEST = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--confcutdir", str(ROOT)]
PYTEST += ["-o", "addopts=--import-mode=importlib -ra"]
"""Without pytest-xdist, which the machine may not have and these tests do not need."""
ITEMS = {
    "exactness": ("-m", "pytest", *PYTEST, "-m", "cuda", *TESTS),
    "objective": (str(HERE / "objective.py"),),
    "step": (str(HERE / "step.py"),),
    "generation": (str(HERE / "generation.py"),),
    "groups": (str(HERE / "groups.py"), "--minutes", "6"),
}
MINUTES = {"exactness": 5, "objective": 6, "step": 6, "generation": 5, "groups": 10}
FINISHED = "Finished."
Item = StrEnum("Item", {name: name for name in ITEMS})


def main(
    items: Annotated[list[Item], typer.Argument(help="The items to measure.")] = list(Item),  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(help="Write the page to this file after each item; finished items stay.")
    ] = None,
    device: DeviceOption = Device.cuda,
    quick: Quick = False,
) -> None:
    """Measure one item after the other and print one Markdown page."""
    sections = finished_sections(out.read_text(encoding="utf-8")) if out is not None and out.is_file() else {}
    failed = []
    for item in items:
        name = item.value
        if name in sections:
            print(f"{name}: finished before, see {out}", flush=True)
            continue
        command = [sys.executable, *ITEMS[name]]
        if name != "exactness":
            command += ["--device", device.value, *(["--quick"] if quick else [])]
        rows = out.with_name(f"{out.name}.{name}") if out is not None else Path(os.devnull)
        text, wrong = measure(command, 60 * MINUTES[name], rows)
        failed += [name] if wrong else []
        sections[name] = f"## {name}\n\n{text}\n{wrong or FINISHED}\n"
        print(sections[name], flush=True)
        if out is not None:
            ordered = [sections[item] for item in ITEMS if item in sections]
            part = out.with_name(f"{out.name}.part")
            part.write_text("\n".join(ordered), encoding="utf-8")
            part.replace(out)
            rows.unlink()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


def measure(command: list[str], seconds: int, rows: Path) -> tuple[str, str]:
    """Return the output of an item, and what went wrong; empty if nothing did. Each row goes to a file at once."""
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    begun, lines, wrong = time.monotonic(), [], ""
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=offline) as item,
        rows.open("w") as file,
    ):
        stop = threading.Timer(seconds, item.kill)
        stop.start()
        for line in item.stdout:
            lines.append(line)
            file.write(line)
            file.flush()
        stopped = not stop.is_alive()
        stop.cancel()
    if stopped:
        wrong = f"Stopped after {seconds / 60:g} minutes."
    elif item.returncode:
        wrong = f"Failed with exit code {item.returncode}."
    return f"{''.join(lines)}\n{time.monotonic() - begun:.0f} s", wrong


def finished_sections(page: str) -> dict[str, str]:
    """Return the sections of a page, by item, whose last line says that the item has finished.

    Example:
        >>> finished_sections("## step\\n\\n1 ms\\nFinished.\\n\\n## groups\\n\\nStopped after 10 minutes.\\n").keys()
        dict_keys(['step'])
    """
    parts = [part.rstrip() for part in re.split(rf"^(?=## (?:{'|'.join(ITEMS)})$)", page, flags=re.MULTILINE)]
    whole = [part for part in parts if part.startswith("## ") and part.endswith(f"\n{FINISHED}")]
    return {part.split("\n")[0].removeprefix("## "): f"{part}\n" for part in whole}


if __name__ == "__main__":
    typer.run(main)
