"""Everything that travels beside the weights: tokenizer, processor, templates, generation settings."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".pkl"}
_FOLDERS = {"additional_chat_templates"}
_OWN = {"config.json", "export.json"}  # written by the export itself

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer_config.json")
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True)
class Companions:
    """The files to copy, by their name in the output, and the names of what is left out."""

    files: dict[str, Path]
    left_out: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Size of the files to copy."""
        return sum(path.stat().st_size for path in self.files.values())


def find_companions(base: Path, adapter: Path | None = None) -> tuple[Companions, list[str]]:
    """List what comes along from the base, with warnings about what is missing there.

    A tokenizer or processor that the base lacks is taken from the adapter's folder if it is there.
    """
    files, left_out, warnings = {}, [], []
    for path in sorted(base.rglob("*")):
        name = path.relative_to(base).as_posix()
        if not path.is_file() or name in _OWN:
            continue
        if "/" in name and name.split("/", 1)[0] not in _FOLDERS:
            left_out.append(name)
        elif path.suffix in _WEIGHTS or name.endswith(".index.json") or name.startswith("."):
            if path.suffix != ".safetensors" and not name.endswith("safetensors.index.json"):
                left_out.append(name)
        else:
            files[name] = path
    for kind, names in (("tokenizer", TOKENIZER_FILES), ("processor", PROCESSOR_FILES)):
        if any(name in files for name in names):
            continue
        found = _of_kind(adapter, kind) if adapter else {}
        files |= {name: path for name, path in found.items() if name not in files}
        where = "taken from the adapter's folder" if found else "the export has none either"
        warnings.append(f"{base}: no {kind} files ({where})")
    return Companions(files, tuple(left_out)), warnings


def _of_kind(folder: Path, kind: str) -> dict[str, Path]:
    names = TOKENIZER_FILES if kind == "tokenizer" else PROCESSOR_FILES
    if not any((folder / name).exists() for name in names):
        return {}
    beside = (
        "merges.txt",
        "added_tokens.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "chat_template.json",
    )
    beside = beside if kind == "tokenizer" else ("video_preprocessor_config.json",)
    return {name: folder / name for name in (*names, *beside) if (folder / name).is_file()}


def copy_companions(companions: Companions, folder: Path) -> None:
    """Copy the files, through links, into an output folder."""
    for name, path in companions.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / name)


def write_json(path: Path, content: dict) -> None:
    """Write a JSON file as transformers does: indented, in UTF-8, with a newline at the end."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
