"""`merge`: base + adapter -> checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coord_codec.files import InputError
from coord_exporter.adapter import Adapter, open_adapter
from coord_exporter.adapter_folder import lora_modules, write_lora
from coord_exporter.checkpoint.folder import Export, find_companions, history_of, write_export
from coord_exporter.checkpoint.read import CARD_FILE, StoredCheckpoint, open_checkpoint
from coord_exporter.checkpoint.staging import check_out
from coord_exporter.form4 import check_form, in_form
from coord_exporter.inputs import find_adapter, find_folder
from coord_exporter.model_card import BASE_CARD, write_card
from coord_exporter.plan import MergePlan, plan_merge
from coord_exporter.prompting import bring_card
from coord_exporter.vocabulary import DTYPES, check_base, check_fingerprint, set_dtype, set_tied, with_one_tie

_VERIFIED_BYTES = 1 << 30  # bases up to this size are verified by default

_VLLM_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Sizes of attention heads that vLLM 0.32 runs on a CPU."""


@dataclass(frozen=True)
class MergeReport:
    """Result of `merge`.

    Attributes:
        out: the checkpoint
        changed: number of tensors that differ from the base's
        tensors: number of tensors
        untied: whether a separate head was written although the base ties it
        warnings: checks that were not possible, and files that were not copied
        verification: results of `--verify`, None if it did not run
    """

    out: Path
    changed: int
    tensors: int
    untied: bool
    warnings: tuple[str, ...]
    verification: dict[str, Any] | None


def merge(
    base: str | Path,
    adapter: str | Path,
    out: str | Path,
    *,
    force: bool = False,
    max_shard_size: int | None = None,
    verify: bool | None = None,
    quiet: bool = False,
    dtype: str | None = None,
    keep_lora: str | Path | None = None,
    form: int | None = None,
) -> MergeReport:
    """Merge a PEFT adapter (LoRA, DoRA, saved modules, coordinate offsets) into a plain checkpoint.

    Args:
        base: the checkpoint folder that the adapter was trained on, or a hub id in the local hub cache
        adapter: the adapter folder, a run folder, or a hub id
        out: the folder to create; it is complete or does not appear
        force: whether to replace an existing folder that an export wrote, and to merge into another base than the
            one that the adapter names
        max_shard_size: bytes of tensors per file; None keeps the base's files
        verify: whether to compare every tensor with PEFT's; None does so for bases of up to 1 GiB
        quiet: whether to show no progress
        dtype: "bfloat16", "float16" or "float32" for all weights; None keeps the base's dtypes
        keep_lora: a second folder to create, with the LoRA of all layers but embedding and head as a plain adapter of
            `out`, into which then only the rest is merged; nothing is verified
        form: 4 writes the small files as transformers 4 did; None keeps the base's

    Raises:
        InputError: if an exact merge of the inputs is not possible; nothing was written
        ExportError: if writing or verifying fails; nothing was written
    """
    # The inputs. Of the base only headers and small files are read.
    out = Path(out)
    base_folder = find_folder(base)
    adapter_folder, chosen = find_adapter(adapter)
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"--dtype: expected one of {', '.join(DTYPES)}, found {dtype!r}")
    check_form(form)
    check_out(out, (base_folder, adapter_folder), force)
    warnings = [chosen] if chosen else []
    if keep_lora is not None:
        check_out(Path(keep_lora), (base_folder, adapter_folder, out), force)
    checkpoint = open_checkpoint(base_folder)
    opened = open_adapter(adapter_folder)
    source = _source_entry(checkpoint, opened)

    # The tensors and the files beside them.
    plan = plan_merge(checkpoint, opened, dtype, keep_lora=keep_lora is not None)
    if keep_lora is not None:
        lora_modules(checkpoint, opened)
        verify = False
    companions, left_out = find_companions(checkpoint, opened.folder)
    warnings += [*plan.notes, *left_out]
    fingerprint = opened.fingerprint()
    if opened.offsets is not None or fingerprint is not None:
        warnings += check_fingerprint(base_folder, fingerprint)
    warnings += check_base(base_folder, opened.card.get("base"), force)
    prompting_notes, rewritten = bring_card(opened, companions)
    if keep_lora is not None:  # the card describes the model with its LoRA
        companions.pop(CARD_FILE, None)
    if (base_card := companions.pop("README.md", None)) is not None:
        companions[BASE_CARD] = base_card
    config, config_notes = _config_of_out(checkpoint, plan, dtype)
    warnings += [*prompting_notes, *config_notes, *_unserved_heads(config)]
    entry: dict[str, Any] = {
        "kind": "merge" if keep_lora is None else "rows",
        "adapter": source,
        "fingerprint": fingerprint,
    }
    entry |= {"tied": plan.tied, "changed_tensors": len(plan.changed)}
    facts: dict[str, object] = {
        "fingerprint": fingerprint,
        "changed tensors": f"{len(plan.changed)} of {len(plan.recipes)}",
    }
    card = write_card(checkpoint, str(base), opened, facts)
    export = in_form(Export(checkpoint, plan.recipes, config, companions, entry, rewritten, card), form)

    # The output, which appears when it is complete and verified.
    def check(stage: Path) -> dict[str, Any]:
        figures, notes = _verify(checkpoint, opened, stage)
        warnings.extend(notes)
        return figures

    small = checkpoint.nbytes <= _VERIFIED_BYTES
    verification = write_export(
        export,
        out,
        force=force,
        max_shard_size=max_shard_size,
        quiet=quiet,
        verify=check if verify or (verify is None and small) else None,
    )
    if keep_lora is not None:
        write_lora(checkpoint, opened, Path(keep_lora), out, force)
    return MergeReport(out, len(plan.changed), len(plan.recipes), plan.untied, tuple(warnings), verification)


def _source_entry(base: StoredCheckpoint, adapter: Adapter) -> dict[str, Any]:
    """Return the adapter's name and digests for the record; an `InputError` if it is merged already."""
    sources, name = adapter.sources(), adapter.file.path.name
    for entry in history_of(base.folder):
        if entry.get("adapter", {}).get(name) == sources[name]:
            what = "is" if entry.get("kind") == "merge" else "its rows are"
            raise InputError(
                f"{adapter.folder}: {what} merged into {base.folder} already (according to its export.json)"
            )
    return sources


def _config_of_out(base: StoredCheckpoint, plan: MergePlan, dtype: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the content of config.json, and notes on what changed in it."""
    config, notes = with_one_tie(base, plan.was_tied)
    if plan.untied:
        config = set_tied(config, False)
        notes.append("embedding and head differ after merging: lm_head.weight is written, tie_word_embeddings is false")
    return (config if dtype is None else set_dtype(config, dtype)), notes


def _unserved_heads(config: dict[str, Any]) -> list[str]:
    """Return a note if vLLM's CPU attention does not take the size of the attention heads."""
    text = config.get("text_config", config)
    hidden, heads = text.get("hidden_size"), text.get("num_attention_heads")
    size = text.get("head_dim") or (hidden // heads if hidden and heads else None)
    if size is None or size in _VLLM_HEADS:
        return []
    sizes = ", ".join(map(str, _VLLM_HEADS))
    return [f"attention heads of {size}: vLLM on a CPU takes {sizes}, and stops at its first request with others"]


def _verify(base: StoredCheckpoint, adapter: Adapter, stage: Path) -> tuple[dict[str, Any], list[str]]:
    """Compare a finished folder with PEFT's merge; return the figures for the record, and notes."""
    from coord_exporter.verify.tensors import verify_tensors

    notes = []
    figures = verify_tensors(base, adapter, open_checkpoint(stage))
    if vanished := figures.pop("vanished"):
        notes.append(
            f"{len(vanished)} of {figures['compared']} changes are lost by rounding to the weights' dtype, "
            f"the first in {vanished[0]}: the adapter's changes are too small for it"
        )
    return figures, notes
