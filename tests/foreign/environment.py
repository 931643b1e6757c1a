"""Makes an environment with tools of others, apart from the workspace, whose libraries have other versions.

    python tests/foreign/environment.py

It is made in the user's cache, or below $COORDEXP_FOREIGN, and anew when the list of requirements changes: 0.8 GB.
Ray, which runs together with the workspace, has a small one of its own: 0.2 GB.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
"""All packages with their versions, so that nothing is resolved; torch, which none of the calls needs, is left out."""


def versions() -> dict[str, str]:
    """Return the version of each package."""
    rows = (line.partition("==") for line in REQUIREMENTS.read_text().split())
    return {name: version for name, _, version in rows}


def folder(requirements: Path) -> Path:
    """Return the folder of the environment with these packages."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    return Path(os.environ.get("COORDEXP_FOREIGN") or cache / "coordexp") / f"foreign-{digest}"


def make(requirements: Path = REQUIREMENTS) -> Path:
    """Make an environment, from the beginning if an earlier call was stopped, and return its Python.

    Raises:
        CalledProcessError: if a package cannot be installed
    """
    place = folder(requirements)
    python = place / "bin" / "python"
    if (place / "complete").is_file():
        return python
    shutil.rmtree(place, ignore_errors=True)
    if uv := shutil.which("uv"):
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
        words = [uv, "pip", "install", "--quiet", "--python", python]
    else:
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        words = [python, "-m", "pip", "install", "--quiet"]
    # Outside of the workspace, whose versions uv would ask for.
    subprocess.run([*words, "--no-deps", "-r", requirements], check=True, capture_output=True, text=True, cwd=place)
    (place / "complete").touch()
    return python


if __name__ == "__main__":
    print(make())
