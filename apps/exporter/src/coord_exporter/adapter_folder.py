"""Writes adapter folders: weights, settings, the files that say how to ask the model, and export.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coord_adapter import weights_digest
from coord_adapter.format import offset_part
from coord_codec.files import InputError
from coord_exporter.adapter import Adapter
from coord_exporter.checkpoint.folder import adapter_companions, copy_companions, versions, write_json, write_record
from coord_exporter.checkpoint.read import CARD_FILE, ITEM_BYTES, StoredCheckpoint, read_object
from coord_exporter.checkpoint.recipe import Recipe, copy_of
from coord_exporter.checkpoint.staging import check_space, staged
from coord_exporter.checkpoint.write import OutFile, header_of, write_file
from coord_exporter.vocabulary import find_tables


def write_lora(base: StoredCheckpoint, adapter: Adapter, out: Path, base_name: Path, force: bool) -> None:
    """Write what `plan_merge` leaves out with `keep_lora`: a plain LoRA adapter of the merged base."""
    modules = lora_modules(base, adapter)
    names = tuple(f"base_model.model.{module}." for module in modules)
    kept = [t for t in adapter.file.tensors if t.name.startswith(names) and offset_part(t.name) is None]
    config = read_object(adapter.config.path) | {
        "base_model_name_or_path": str(base_name),
        "target_modules": modules,
        "bias": "none",
        **dict.fromkeys(("modules_to_save", "trainable_token_indices", "exclude_modules", "layers_to_transform")),
    }

    def name_base(stage: Path) -> dict[str, Any]:
        if (card := adapter.card).get("base") is not None:
            write_json(stage / CARD_FILE, card | {"base": weights_digest(base_name)})
        return {}

    write_adapter(adapter, [copy_of(tensor) for tensor in kept], config, out, "lora", force, name_base)


def lora_modules(base: StoredCheckpoint, adapter: Adapter) -> list[str]:
    """Return the modules with factors, none of embedding and head; factors of experts are refused."""
    tables = find_tables(base)
    tied = {name.rpartition(".")[0].rpartition(".")[2] for name in (tables.embed, tables.head)}
    found = sorted(module for module in adapter.factors if module.rpartition(".")[2] not in tied)
    if not found or adapter.config.target_parameters:
        what = "LoRA of experts" if found else "no LoRA beside that of embedding and head"
        raise InputError(f"{adapter.file.path}: {what}, nothing that can stay an adapter: merge without --keep-lora")
    return found


def write_adapter(
    opened: Adapter,
    recipes: list[Recipe],
    config: dict[str, Any],
    out: Path,
    kind: str,
    force: bool,
    verify: Callable[..., Any],
) -> None:
    """Write an adapter folder from recipes, which appears when it is complete and verified.

    `opened` is the adapter that it is made from, `kind` that of the export, for the record. `verify` is
    called with the finished folder before it becomes `out`; its result is recorded.

    Raises:
        ExportError: if writing or verifying fails; nothing was written
    """
    recipes = sorted(recipes, key=lambda recipe: -ITEM_BYTES[recipe.dtype])  # so that each is aligned to its dtype
    file = OutFile(opened.file.path.name, tuple(recipes), header_of(recipes, opened.file.metadata))
    check_space(Path(out), file.size)
    entry = {"kind": kind, "adapter": opened.sources(), "versions": versions()}
    with staged(Path(out), force) as stage:
        write_file(stage / file.name, file, lambda count: None)
        write_json(stage / opened.config.path.name, config)
        copy_companions(adapter_companions(opened.folder), stage)
        if figures := verify(stage):
            entry["verification"] = figures
        write_record(stage, [entry])
