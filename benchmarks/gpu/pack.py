"""Gathers what a GPU machine without network needs into one folder: the checkout, wheels and a script that measures.

    uv run python benchmarks/gpu/pack.py FOLDER [--python 3.12]
    FOLDER/run.sh [exactness objective ...] [--out FILE]         there, with the machine's own torch, NumPy and pytest

The wheels are the workspace's own and those of wheels.txt beside this file, in the versions of requirements.lock. They
are installed into FOLDER/site, so that the machine's own packages stay as they are.
"""

import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Annotated

import typer

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LEFT_OUT = (":!docs", ":!*/docs", ":!.ci", ":!tools")
TAGS = ("manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 36)))
"""For a glibc of at most 2.35."""
SCRIPT = """#!/usr/bin/env bash
# Installs the wheels beside this script into site/ and measures; without arguments every item, page in gpu.md.
set -euo pipefail
cd "$(dirname "$0")"
if [ ! -d site ]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --target site.part wheels/*.whl
  mv site.part site
fi
export PYTHONPATH=$PWD/site HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
[ $# -gt 0 ] || set -- --out "$PWD/gpu.md"
exec python3 checkout/benchmarks/gpu/run.py "$@"
"""


def main(
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    python: Annotated[str, typer.Option(help="The Python of the machine.")] = "3.12",
) -> None:
    """Gather checkout, wheels and script in a folder, and say how large it is."""
    if folder.exists():
        raise typer.BadParameter(f"{folder} exists: name a folder that does not")
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    run("uv", "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(wheels))
    (wheels / ".gitignore").unlink(missing_ok=True)
    tags = [word for tag in TAGS for word in ("--platform", tag)]
    pip = ("uv", "run", "--no-project", "--isolated", "--quiet", "--with", "pip", "python", "-m", "pip", "download")
    only = ("--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", python, *tags)
    run(*pip, *only, "--dest", str(wheels), *requirements())
    archive = folder / "checkout.tar"
    run("git", "archive", "--output", str(archive.resolve()), "HEAD", "--", ".", *LEFT_OUT)
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "checkout", filter="data")
    archive.unlink()
    script = folder / "run.sh"
    script.write_text(SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {len(list(wheels.iterdir()))} wheels for Python {python}, {size / 1e6:.0f} MB in all")


def requirements() -> list[str]:
    """Return the names of wheels.txt with the versions of requirements.lock; what is not in the lock is the newest."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ \\\n]+)", lock, re.MULTILINE))
    names = (HERE / "wheels.txt").read_text(encoding="utf-8").split()
    return [f"{name}=={pins[name]}" if name in pins else name for name in names]


def run(*command: str) -> None:
    """Run a command in the checkout; its failure is this script's."""
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    typer.run(main)
