"""Runs all measurements on a GPU one after another, and prints one Markdown page.

    python benchmarks/gpu/run.py [exactness objective ...] [--quick] [--out FILE] [--device cpu]

Needs torch, transformers, peft, pydantic and the workspace's packages, and takes about 25 minutes on one H200; every
item can be run by itself. `--device cpu --quick` tries the commands without a GPU. The output of an item that fails or
takes too long is kept, and the next item starts.
"""

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from measure import Device, DeviceOption, Quick

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TESTS = sorted(str(path) for path in ROOT.glob("*/*/tests/**/test_*_cuda.py"))
ITEMS = {
    "exactness": ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "cuda", *TESTS),
    "objective": (str(HERE / "objective.py"),),
    "step": (str(HERE / "step.py"),),
    "generation": (str(HERE / "generation.py"),),
    "groups": (str(HERE / "groups.py"), "--minutes", "6"),
}
MINUTES = {"exactness": 5, "objective": 6, "step": 6, "generation": 5, "groups": 10}
Item = StrEnum("Item", {name: name for name in ITEMS})


def main(
    items: Annotated[list[Item], typer.Argument(help="The items to measure.")] = list(Item),  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Also write the page to this file, after each item.")] = None,
    device: DeviceOption = Device.cuda,
    quick: Quick = False,
) -> None:
    """Measure one item after the other and print one Markdown page."""
    page, failed = "", []
    for name in items:
        command = [sys.executable, *ITEMS[name]]
        if name != "exactness":
            command += ["--device", device, *(["--quick"] if quick else [])]
        section = f"## {name}\n\n"
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60 * MINUTES[name], check=False
            )
            section += done.stdout
            wrong = done.returncode != 0
        except subprocess.TimeoutExpired as error:
            section += (error.stdout or b"").decode() + f"\nStopped after {MINUTES[name]} minutes.\n"
            wrong = True
        failed += [name] if wrong else []
        print(section, flush=True)
        page += section + "\n"
        if out:
            out.write_text(page, encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
