"""`to-peft` and `from-peft`: convert an adapter's offsets to PEFT's own `trainable_token_indices`, and back.

PEFT stores the rows themselves in the base's dtype, this project their difference from the base; only these rows of the
base are read. The adapter's other tensors are copied as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_adapter.format import GUARD_NAME, MODULE_NAME, SavedOffsets, offset_part, offset_tensors
from coord_codec.files import InputError
from coord_exporter.adapter import Adapter, open_adapter
from coord_exporter.adapter_folder import write_adapter
from coord_exporter.checkpoint.modules import named_as_modules
from coord_exporter.checkpoint.read import FLOATS, StoredCheckpoint, TensorInfo, open_checkpoint, read_object
from coord_exporter.checkpoint.recipe import copy_of, made_of, read_float, read_rows, torch_dtype
from coord_exporter.checkpoint.staging import check_out
from coord_exporter.inputs import find_adapter, find_folder
from coord_exporter.plan import offset_steps, trained_ids
from coord_exporter.vocabulary import Tables, check_base, check_fingerprint, find_tables

if TYPE_CHECKING:
    import torch

_ROWS = "base_model.model.{}.token_adapter.trainable_tokens_delta"


@dataclass(frozen=True)
class ConvertReport:
    """Result of `to_peft` or `from_peft`.

    Attributes:
        out: the adapter folder
        rows: number of token ids with rows or offsets in it
        tables: number of tables: one, or one for the embedding and one for the head
        warnings: checks that were not possible
    """

    out: Path
    rows: int
    tables: int
    warnings: tuple[str, ...]


def to_peft(
    base: Path | str, adapter: Path | str, out: Path, *, force: bool = False, verify: bool = True
) -> ConvertReport:
    """Write an adapter's coordinate offsets as PEFT's `trainable_token_indices`, which peft loads without this project.

    Args:
        base: the checkpoint folder that the adapter was trained on
        adapter: the adapter folder
        out: the adapter folder to create; it is complete or does not appear
        force: whether to replace an existing folder that an export wrote
        verify: whether to load the result with plain PEFT and compare its rows

    Raises:
        InputError: for an adapter without offsets, with LoRA on embedding or head, or with two tables on a base that
            ties the two; nothing was written
        ExportError: if writing or verifying fails; nothing was written
    """
    checkpoint, tables, opened, warnings = _open(base, adapter, out, force)
    offsets = opened.offsets
    where = str(opened.file.path)
    if offsets is None or not offsets.ids:
        raise InputError(f"{where}: no coordinate offsets; plain PEFT can load this adapter unchanged")
    if offsets.head is not None and tables.tied:
        raise InputError(f"{where}: two tables on a base that ties embedding and head; PEFT supports one. Use merge")
    names = [tables.embed] if tables.tied else [tables.embed, tables.head]
    for module in (name.removesuffix(".weight") for name in names):
        if module in opened.factors:
            raise InputError(f"{where}: {module}: PEFT supports LoRA or trainable_token_indices, not both. Use merge")
    recipes = [copy_of(tensor) for tensor in opened.file.tensors if offset_part(tensor.name) is None]
    steps = offset_steps(checkpoint, opened, tables)
    for name in names:
        weight = checkpoint.tensors[name]
        table = steps[name].table
        assert isinstance(table, TensorInfo)
        rows = _read_rows_of(weight, offsets.ids) + read_float(table)
        recipes.append(made_of(_ROWS.format(name.removesuffix(".weight")), rows.to(torch_dtype(weight.dtype)), weight))
    config = read_object(opened.config.path)
    listed = {name: list(ids) for name, ids in opened.config.trainable_token_indices.items()}
    config["trainable_token_indices"] = listed | {name.split(".")[-2]: list(offsets.ids) for name in names}
    config["modules_to_save"] = [name for name in opened.config.modules_to_save if name != MODULE_NAME] or None

    def check(stage: Path) -> dict[str, Any]:
        from coord_exporter.verify.tensors import verify_rows

        return verify_rows(checkpoint, opened, open_adapter(stage)) if verify else {}

    write_adapter(opened, recipes, config, out, "to-peft", force, check)
    return ConvertReport(Path(out), len(offsets.ids), len(names), tuple(warnings))


def from_peft(base: Path | str, adapter: Path | str, out: Path, *, force: bool = False) -> ConvertReport:
    """Write PEFT's `trainable_token_indices` of embedding and head as coordinate offsets, to continue training.

    Args:
        base: the checkpoint folder that the adapter was trained on
        adapter: the adapter folder
        out: the adapter folder to create; it is complete or does not appear
        force: whether to replace an existing folder that an export wrote

    Raises:
        InputError: for an adapter without trained rows, or with offsets already; nothing was written
        ExportError: if writing fails; nothing was written
    """
    import torch

    checkpoint, tables, opened, warnings = _open(base, adapter, out, force)
    if opened.offsets is not None:
        raise InputError(f"{opened.file.path}: contains coordinate offsets already")
    trained: dict[str, tuple[tuple[int, ...], TensorInfo]] = {}
    for name in (tables.embed, tables.head):
        module, weight = name.removesuffix(".weight"), tables.source(checkpoint, name)
        if (factors := opened.factors.get(module)) is not None and factors.token_rows is not None:
            trained[name] = (trained_ids(opened, module, factors.token_rows, weight), factors.token_rows)
    if not trained:
        raise InputError(f"{opened.file.path}: no trained rows of {tables.embed} or {tables.head}; nothing to convert")
    ids = tuple(sorted({token_id for listed, _ in trained.values() for token_id in listed}))
    offsets = {}
    for name, (listed, table) in trained.items():
        weight = tables.source(checkpoint, name)
        offset = torch.zeros(len(ids), *weight.shape[1:])
        offset[[ids.index(token_id) for token_id in listed]] = read_float(table) - _read_rows_of(weight, listed)
        offsets[name] = offset
    embed = offsets.get(tables.embed, torch.zeros(len(ids), *checkpoint.tensors[tables.embed].shape[1:]))
    head = offsets.get(tables.head, None if tables.tied else torch.zeros_like(embed))
    fingerprint = opened.card.get("fingerprint")
    parts = offset_tensors(SavedOffsets(torch.tensor(ids), embed, head, fingerprint))
    converted = tuple(_ROWS.format(name.removesuffix(".weight")).rpartition(".")[0] for name in trained)
    recipes = [copy_of(tensor) for tensor in opened.file.tensors if not tensor.name.startswith(converted)]
    source = checkpoint.tensors[tables.embed]
    recipes += [made_of(name, value, source) for name, value in parts.items()]
    config = read_object(opened.config.path)
    lists = opened.config.trainable_token_indices.items()
    others = {name: list(ids) for name, ids in lists if not _is_table(tables, name)}
    config["trainable_token_indices"] = {**others, GUARD_NAME: [0]}
    config["modules_to_save"] = [*opened.config.modules_to_save, MODULE_NAME]
    if fingerprint is None:
        warnings.append("the adapter carries no fingerprint: the vocabulary of its offsets cannot be checked later")
    write_adapter(opened, recipes, config, out, "from-peft", force, lambda stage: {})
    return ConvertReport(Path(out), len(ids), 1 if head is None else 2, tuple(warnings))


def _open(
    base: Path | str, adapter: Path | str, out: Path, force: bool
) -> tuple[StoredCheckpoint, Tables, Adapter, list[str]]:
    base = find_folder(base)
    adapter, chosen = find_adapter(adapter)
    check_out(Path(out), (base, adapter), force)
    opened = open_adapter(adapter)
    checkpoint = named_as_modules(open_checkpoint(base))
    warnings = [chosen] if chosen else []
    fingerprint = opened.fingerprint()
    if fingerprint is not None:
        warnings += check_fingerprint(base, fingerprint)
    warnings += check_base(base, opened.card.get("base"), force)
    tables = find_tables(checkpoint)
    for name in (tables.embed, tables.head):
        if (weight := tables.source(checkpoint, name)).dtype not in FLOATS:
            raise InputError(f"{base}: {name}: expected {', '.join(FLOATS)}, found {weight.dtype}")
    return checkpoint, tables, opened, warnings


def _is_table(tables: Tables, key: str) -> bool:
    return any(f".{name}".endswith(f".{key}.weight") for name in (tables.embed, tables.head))


def _read_rows_of(weight: TensorInfo, ids: tuple[int, ...]) -> torch.Tensor:
    """Read the rows of these ids from a table, in float32 [K, H]."""
    import torch

    return torch.cat([read_rows(weight, token_id, token_id + 1) for token_id in ids])
