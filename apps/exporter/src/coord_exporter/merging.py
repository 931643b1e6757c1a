"""`merge`: base + adapter -> checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .adapter import Adapter, open_adapter
from .checkpoint import Checkpoint, open_checkpoint
from .companions import find_companions
from .export import Export, write_export
from .plan import MergePlan, plan_merge
from .record import history_of, refuse_second_merge, sha256_of
from .staging import check_out
from .tables import set_tied
from .vocabulary import check_fingerprint

_VERIFIED_BYTES = 1 << 30  # bases up to this size are verified unless told otherwise


@dataclass(frozen=True)
class MergeReport:
    """What a merge did.

    Attributes:
        out: the checkpoint.
        changed: how many tensors differ from the base's.
        tensors: how many there are.
        untied: whether the head was written apart from a base that tied it.
        warnings: what could not be checked or did not come along.
        verification: the figures of `--verify`, None if it did not run.
    """

    out: Path
    changed: int
    tensors: int
    untied: bool
    warnings: tuple[str, ...]
    verification: dict | None


def merge(
    base: Path,
    adapter: Path,
    out: Path,
    *,
    force: bool = False,
    max_shard_size: int | None = None,
    verify: bool | None = None,
    quiet: bool = False,
) -> MergeReport:
    """Merge a PEFT adapter (LoRA, DoRA, saved modules, coordinate offsets) into a plain checkpoint.

    Args:
        base: the checkpoint folder the adapter was trained on.
        adapter: the adapter folder.
        out: the folder to make; it appears whole or not at all.
        force: whether an existing checkpoint folder is replaced.
        max_shard_size: bytes of tensors per file; None keeps the base's files.
        verify: whether to compare logits and greedy tokens with PEFT; None for bases up to 1 GiB.
        quiet: whether to show no progress.

    Raises:
        InputError: for anything about the inputs that forbids an exact merge; nothing was written.
        ExportError: if writing or verifying fails; nothing was written.
    """
    base, adapter, out = Path(base), Path(adapter), Path(out)
    notes = check_out(out, (base, adapter), force)
    checkpoint, opened_adapter = open_checkpoint(base), open_adapter(adapter)
    digest = sha256_of(opened_adapter.file.path)
    refuse_second_merge(history_of(base), digest, base, adapter)
    plan = plan_merge(checkpoint, opened_adapter)
    companions, warnings = find_companions(base, adapter)
    warnings = notes + warnings + _warnings(checkpoint, opened_adapter, plan)
    if companions.left_out:
        warnings.append(
            f"{base}: {len(companions.left_out)} files left out: {', '.join(companions.left_out[:5])}"
        )
    config = set_tied(checkpoint.config, False) if plan.was_tied and not plan.tied else checkpoint.config
    export = Export(checkpoint, plan.recipes, config, companions, _entry(opened_adapter, plan, digest))
    if verify is None:
        verify = checkpoint.nbytes <= _VERIFIED_BYTES
    verification = write_export(
        export,
        out,
        force=force,
        max_shard_size=max_shard_size,
        quiet=quiet,
        verify=_verifier(checkpoint, opened_adapter) if verify else None,
    )
    untied = plan.was_tied and not plan.tied
    return MergeReport(out, len(plan.changed), len(plan.recipes), untied, tuple(warnings), verification)


def _warnings(base: Checkpoint, adapter: Adapter, plan: MergePlan) -> list[str]:
    found = []
    if adapter.offsets is not None and (
        warning := check_fingerprint(base.folder, adapter.offsets.fingerprint)
    ):
        found.append(warning)
    if plan.was_tied and not plan.tied:
        found.append(
            "embedding and head come out different: lm_head.weight is written, tie_word_embeddings is false"
        )
    return found


def _entry(adapter: Adapter, plan: MergePlan, digest: str) -> dict:
    return {
        "kind": "merge",
        "adapter": {
            "name": adapter.folder.name,
            "adapter_model.safetensors": digest,
            "adapter_config.json": sha256_of(adapter.config.path),
        },
        "fingerprint": adapter.offsets.fingerprint if adapter.offsets else None,
        "tied": plan.tied,
        "changed_tensors": len(plan.changed),
    }


def _verifier(base: Checkpoint, adapter: Adapter) -> Callable[[Path], dict]:
    def run(stage: Path) -> dict:
        from .verify import verify_export

        return verify_export(base, adapter, stage)

    return run
