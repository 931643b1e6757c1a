"""Writes a checkpoint folder: weights, index, configuration, files copied from the base, and export.json."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm import tqdm

from coord_codec.files import InputError, write_text
from coord_exporter.checkpoint.read import CARD_FILE, INDEX_FILE, RECORD_FILE, StoredCheckpoint, read_object
from coord_exporter.checkpoint.recipe import Recipe
from coord_exporter.checkpoint.staging import check_space, staged
from coord_exporter.checkpoint.write import index_of, lay_out, one_thread, write_file

_FORMAT = 1
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".pkl"}
_FOLDERS = {"additional_chat_templates"}

# Files whose presence shows that there is a tokenizer or processor, and further files that belong to it.
_TOKENIZER = ("tokenizer.json", "vocab.json", "tokenizer_config.json")
_PROCESSOR = ("preprocessor_config.json", "processor_config.json")
_BESIDE_TOKENIZER = (
    *("merges.txt", "added_tokens.json", "special_tokens_map.json"),
    *("chat_template.jinja", "chat_template.json"),
)
_KINDS = {"tokenizer": (_TOKENIZER, _BESIDE_TOKENIZER), "processor": (_PROCESSOR, ("video_preprocessor_config.json",))}


@dataclass(frozen=True)
class Export:
    """A planned checkpoint.

    Attributes:
        base: the checkpoint it is made from
        recipes: its tensors by name
        config: its configuration
        companions: the files to copy, by their name in the output
        entry: the entry of its record without sources and versions; None keeps the base's record unchanged
        rewritten: contents of the JSON files to change, by name
        card: the text of README.md; None copies the base's
    """

    base: StoredCheckpoint
    recipes: dict[str, Recipe]
    config: dict[str, Any]
    companions: dict[str, Path]
    entry: dict[str, Any] | None
    rewritten: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])
    card: str | None = None


def write_export(
    export: Export,
    out: Path,
    *,
    force: bool = False,
    max_shard_size: int | None = None,
    quiet: bool = False,
    verify: Callable[[Path], dict[str, Any] | None] | None = None,
) -> dict[str, Any] | None:
    """Write a planned checkpoint to OUT, in files of `max_shard_size` bytes or else as in the base.

    `force` replaces an existing folder that an export wrote. `verify` is called with the finished folder
    before it becomes OUT; its result is recorded and returned.

    Raises:
        InputError: if the disk does not have enough space
        ExportError: if writing or verifying fails; OUT is unchanged
    """
    base = export.base
    files = lay_out(base, export.recipes, max_shard_size)
    total = sum(file.size for file in files)
    check_space(out, total + sum(path.stat().st_size for path in export.companions.values()))
    # In a log a line every ten seconds, on a terminal one that changes.
    bar = {"unit": "B", "unit_scale": True, "mininterval": 0.2 if sys.stderr.isatty() else 10}
    with staged(out, force) as stage, _digesting(base) as digests:
        with one_thread(), tqdm(total=total, desc="writing", disable=quiet, **bar) as progress:
            for file in files:
                write_file(stage / file.name, file, progress.update)
        copy_companions(export.companions, stage)
        for name, content in (export.rewritten | {"config.json": export.config}).items():
            write_json(stage / name, content)
        if export.card is not None:
            write_text(stage / "README.md", export.card)
        if (index := index_of(files, base)) is not None:
            write_json(stage / INDEX_FILE, index)
        verified = verify(stage) if verify is not None else None
        history = history_of(base.folder)
        if export.entry is not None:
            sources = {name: digest.result() for name, digest in digests.items()}
            entry = export.entry | {"base": {"name": base.name} | sources, "versions": versions()}
            history = [*history, entry | ({"verification": verified} if verified else {})]
        write_record(stage, history)
    return verified


def find_companions(base: StoredCheckpoint, adapter: Path | None = None) -> tuple[dict[str, Path], list[str]]:
    """List the files to copy from the base, with warnings about those left out or missing.

    Links that leave the base's folder are not followed, except in the hub's cache (from snapshots to blobs). If the
    base has no tokenizer or processor, that of the adapter's folder is used, if any.

    Returns:
        The files to copy by their name in the output, and the warnings.
    """
    files: dict[str, Path] = {}
    left_out: list[str] = []
    links: list[str] = []
    warnings: list[str] = []
    written = {"config.json", RECORD_FILE, *(file.path.name for file in base.files)}
    for path in sorted(base.folder.rglob("*")):
        name = path.relative_to(base.folder).as_posix()
        if name in written or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() and not _is_followed(path, base.folder):
            links.append(f"{name} -> {path.readlink()}")
        elif "/" in name and name.split("/", 1)[0] not in _FOLDERS:
            left_out.append(name)
        elif path.suffix in _WEIGHTS or name.endswith(".index.json") or name.startswith("."):
            if name != INDEX_FILE:
                left_out.append(name)
        else:
            files[name] = path
    for kind, (names, others) in _KINDS.items():
        if any(name in files for name in names):
            continue
        origin = "the export has none either"
        if adapter is not None and any((adapter / name).exists() for name in names):
            from_adapter = {name: adapter / name for name in (*names, *others) if (adapter / name).is_file()}
            files, origin = from_adapter | files, "taken from the adapter's folder"
        warnings.append(f"{base.folder}: no {kind} files ({origin})")
    for description, found in (("files", left_out), ("links that dangle or leave the folder", links)):
        if found:
            warnings.append(f"{base.folder}: {len(found)} {description} left out: {', '.join(found[:5])}")
    return files, warnings


def _is_followed(link: Path, folder: Path) -> bool:
    """Return whether a link leads to a file of the folder, or of the hub cache whose snapshot the folder is."""
    target, place = link.resolve(), folder.resolve()
    blobs = place.parent.parent / "blobs" if place.parent.name == "snapshots" else place
    return target.is_file() and (target.is_relative_to(place) or target.is_relative_to(blobs))


def copy_companions(companions: dict[str, Path], stage: Path) -> None:
    """Copy files into a folder, each under its name there."""
    for name, path in companions.items():
        (stage / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, stage / name)


def adapter_companions(folder: Path) -> dict[str, Path]:
    """List the files of an adapter's folder that say how to ask it: card, tokenizer, processor."""
    names = (CARD_FILE, *(name for kind in _KINDS.values() for names in kind for name in names))
    return {name: folder / name for name in names if (folder / name).is_file()}


def history_of(folder: Path) -> list[dict[str, Any]]:
    """Return the record entries of the exports that led to a checkpoint, oldest first; empty if there were none.

    Raises:
        InputError: for a damaged record, or one of a newer format
    """
    path = folder / RECORD_FILE
    if not path.exists():
        return []
    content = read_object(path)
    if content.get("format") != _FORMAT:
        raise InputError(f"{path}: expected format {_FORMAT}, found {content.get('format')!r}; update coord-exporter")
    history = content.get("history")
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise InputError(f"{path}: history: expected a list of objects, found {history!r:.80}")
    return history


def write_record(stage: Path, history: list[dict[str, Any]]) -> None:
    """Write export.json: the history of a finished folder, and its files, which `--force` may replace."""
    files = sorted(path.relative_to(stage).as_posix() for path in stage.rglob("*") if path.is_file())
    write_json(stage / RECORD_FILE, {"format": _FORMAT, "history": history, "files": files})


def sha256_of(path: Path) -> str:
    """Return the digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _digesting(base: StoredCheckpoint) -> Iterator[dict[str, Future[str]]]:
    """Compute the digests of the base's files in a separate thread, since they take as long as merging."""
    digester = ThreadPoolExecutor(1)
    paths = [base.folder / "config.json", *(file.path for file in base.files)]
    try:
        yield {path.name: digester.submit(sha256_of, path) for path in paths}
    finally:
        digester.shutdown(cancel_futures=True)


def versions() -> dict[str, str]:
    """Return the versions of Python and the packages, for the record of an export."""
    packages = ("coord-exporter", "coord-codec", "torch")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in packages}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file as transformers does."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
