"""A run's folder: older ones are moved aside, files appear whole, and what the result depends on lies beside it."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError

from .config import RunConfig
from .errors import RunError

_FULL_BYTES = 1 << 20
_PACKAGES = (
    "coord-codec",
    "coord-losses",
    "coord-adapter",
    "coord-eval",
    "coord-trainer",
    "torch",
    "transformers",
    "peft",
    "ms-swift",
    "deepspeed",
    "accelerate",
    "pycocotools",
    "numpy",
)


def open_run_folder(path: Path) -> Path | None:
    """Create `path`; an older run there is moved to the first free `path.N`, which is returned.

    Raises:
        RunError: when the folder cannot be made.
    """
    moved = None
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            number = 1
            while (moved := path.with_name(f"{path.name}.{number}")).exists():
                number += 1
            path.rename(moved)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{path}: the run folder cannot be made ({error.strerror}); choose another with run.dir"
        ) from None
    return moved


@contextmanager
def explain_full_disk(folder: Path) -> Iterator[None]:
    """Turn whatever a library raises when it cannot write any more into one `RunError`.

    torch and safetensors have errors of their own for it, so the disk itself is asked.
    """
    try:
        yield
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if not full and "No space left" not in str(error) and shutil.disk_usage(folder).free > _FULL_BYTES:
            raise
        raise RunError(
            f"{getattr(error, 'filename', None) or folder}: no space left on the disk; free some, or choose another "
            "place with run.dir"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it, so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_config(folder: Path, config: RunConfig) -> None:
    """The resolved configuration; feeding it back with `-c` gives the same run."""
    values = config.model_dump(mode="json")
    values["run"]["resume"] = False  # how it was begun is no part of what it is
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    write_text(folder / "config.yaml", text)


class Manifest:
    """manifest.json, rewritten whole whenever something is learnt."""

    def __init__(self, folder: Path, config: RunConfig, command: list[str]) -> None:
        self._path = folder / "manifest.json"
        self._started = time.time()
        self.values: dict[str, Any] = {
            "status": "running",
            "command": command,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seed": config.run.seed,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processors": os.cpu_count(),
            "versions": {name: _version(name) for name in _PACKAGES},
            "git": _git_revision(),
        }
        self.update()

    def update(self, **values: Any) -> None:
        """Add values and write."""
        self.values |= values | {"seconds": round(time.time() - self._started, 1)}
        write_text(self._path, json.dumps(self.values, indent=2, default=str) + "\n")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git_revision() -> dict[str, Any] | None:
    def git(*words: str) -> str:
        where = Path(__file__).parent
        return subprocess.run(
            ["git", *words], cwd=where, capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()

    try:
        return {"revision": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return None  # installed from a wheel, or git is not there


def command_line() -> list[str]:
    """The words of this run."""
    return ["coord-trainer", *sys.argv[1:]]
