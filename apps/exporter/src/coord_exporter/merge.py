"""`merge`: base + adapter -> checkpoint. All tensors are planned and checked before anything is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coord_codec.files import InputError
from coord_exporter.adapter import Adapter, open_adapter
from coord_exporter.card import BASE_CARD, write_card
from coord_exporter.checkpoint.folder import Export, find_companions, history_of, sha256_of, write_export
from coord_exporter.checkpoint.modules import named_as_modules
from coord_exporter.checkpoint.read import FLOATS, StoredCheckpoint, TensorInfo, open_checkpoint
from coord_exporter.checkpoint.recipe import Recipe, Step, copy_of
from coord_exporter.checkpoint.staging import check_out
from coord_exporter.plan import adapter_steps, target_of
from coord_exporter.prompt_card import bring_card
from coord_exporter.sources import find_adapter, find_folder
from coord_exporter.vocabulary import DTYPES, Tables, check_fingerprint, find_tables, set_dtype, set_tied

_VERIFIED_BYTES = 1 << 30  # bases up to this size are verified by default


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
    verification: dict | None


@dataclass(frozen=True)
class MergePlan:
    """The tensors of the output.

    Attributes:
        recipes: recipe of each tensor by name, in the base's order; a new head comes last
        tied: whether embedding and head are tied in the output
        was_tied: whether they are tied in the base
        changed: names of the tensors that are not copied from the base
    """

    recipes: dict[str, Recipe]
    tied: bool
    was_tied: bool
    changed: tuple[str, ...]

    @property
    def untied(self) -> bool:
        """Whether a separate head is written although the base ties it."""
        return self.was_tied and not self.tied


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
    weight: float = 1.0,
    add: Sequence[tuple[str | Path, float]] = (),
) -> MergeReport:
    """Merge a PEFT adapter (LoRA, DoRA, saved modules, coordinate offsets) into a plain checkpoint.

    Args:
        base: the checkpoint folder that the adapter was trained on, or a hub id in the local hub cache
        adapter: the adapter folder, a run folder, or a hub id
        out: the folder to create; it is complete or does not appear
        force: whether to replace an existing folder that an export wrote
        max_shard_size: bytes of tensors per file; None keeps the base's files
        verify: whether to compare every tensor with PEFT's, and for bases of up to 1 GiB also logits and greedy tokens;
            None does so for bases of up to 1 GiB only
        quiet: whether to show no progress
        dtype: "bfloat16", "float16" or "float32" for all weights; None keeps the base's dtypes
        weight: factor of the adapter's changes
        add: further adapters of the same base, each with the factor of its changes

    Raises:
        InputError: if an exact merge of the inputs is not possible; nothing was written
        ExportError: if writing or verifying fails; nothing was written
    """
    name, out, base = str(base), Path(out), find_folder(base)
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"--dtype: expected one of {', '.join(DTYPES)}, found {dtype!r}")
    folders = [find_adapter(folder) for folder in (adapter, *(folder for folder, _ in add))]
    warnings = check_out(out, (base, *(folder for folder, _ in folders)), force) + [note for _, note in folders if note]
    checkpoint = open_checkpoint(base)
    factors = (weight, *(factor for _, factor in add))
    adapters = [(open_adapter(folder), factor) for (folder, _), factor in zip(folders, factors, strict=True)]
    first, sources = adapters[0][0], [_source(base, part, factor) for part, factor in adapters]
    plan = plan_merge(checkpoint, adapters, dtype)
    companions, notes = find_companions(checkpoint, first.folder)
    warnings += notes
    notes, rewritten = bring_card([part for part, _ in adapters], companions)
    warnings += notes
    fingerprints = {fingerprint for part, _ in adapters if (fingerprint := part.fingerprint()) is not None}
    if len(fingerprints) > 1:
        raise InputError(f"{adapter}: the adapters have different vocabularies: {fingerprints}")
    fingerprint = next(iter(fingerprints), None)
    if (any(part.offsets for part, _ in adapters) or fingerprint) and (note := check_fingerprint(base, fingerprint)):
        warnings.append(note)
    if plan.untied:
        warnings.append(
            "embedding and head differ after merging: lm_head.weight is written, tie_word_embeddings is false"
        )
    entry = {"kind": "merge", "adapter": sources[0], "fingerprint": fingerprint, "tied": plan.tied}
    entry |= {"changed_tensors": len(plan.changed)} | ({"added": sources[1:]} if add else {})
    if (base_card := companions.pop("README.md", None)) is not None:
        companions[BASE_CARD] = base_card
    facts = {"fingerprint": fingerprint, "changed tensors": f"{len(plan.changed)} of {len(plan.recipes)}"}
    if add:
        facts["adapters and weights"] = ", ".join(f"{part.name} {factor:g}" for part, factor in adapters)
    card = write_card(checkpoint, name, first, facts)
    config = set_tied(checkpoint.config, False) if plan.untied else checkpoint.config
    config = config if dtype is None else set_dtype(config, dtype)

    def check(stage: Path) -> dict:
        from coord_exporter.verify.tensors import verify_tensors

        figures = verify_tensors(checkpoint, adapters, open_checkpoint(stage))
        if vanished := figures.pop("vanished"):
            warnings.append(
                f"{len(vanished)} of {figures['compared']} changes are lost by rounding to the weights' dtype, "
                f"the first in {vanished[0]}: the adapter's changes are too small for it"
            )
        if checkpoint.nbytes <= _VERIFIED_BYTES and [factor for _, factor in adapters] == [1]:
            from coord_exporter.verify.models import verify_models

            figures |= verify_models(checkpoint, first, stage)
        return figures

    verified = write_export(
        Export(checkpoint, plan.recipes, config, companions, entry, rewritten, card),
        out,
        force=force,
        max_shard_size=max_shard_size,
        quiet=quiet,
        verify=check if verify or (verify is None and checkpoint.nbytes <= _VERIFIED_BYTES) else None,
    )
    return MergeReport(out, len(plan.changed), len(plan.recipes), plan.untied, tuple(warnings), verified)


def _source(base: Path, adapter: Adapter, weight: float) -> dict:
    """Return the entry of an adapter in the export record.

    Raises:
        InputError: if the adapter is already merged according to the base's record
    """
    path = adapter.file.path
    digest = sha256_of(path)
    merges = [entry for entry in history_of(base) if entry.get("kind") == "merge"]
    merged_before = [merged for entry in merges for merged in (entry.get("adapter", {}), *entry.get("added", ()))]
    if any(merged.get(path.name) == digest for merged in merged_before):
        raise InputError(f"{adapter.folder}: is merged into {base} already (according to its export.json)")
    stated = {"name": adapter.name, path.name: digest, adapter.config.path.name: sha256_of(adapter.config.path)}
    return stated | ({} if weight == 1 else {"weight": weight})


def plan_merge(
    base: StoredCheckpoint, adapters: Sequence[tuple[Adapter, float]], dtype: str | None = None
) -> MergePlan:
    """Plan how every output tensor is computed.

    Args:
        base: the base
        adapters: adapters, each with the factor of its changes
        dtype: dtype of all weights; None keeps their dtypes

    Raises:
        InputError: naming the tensor, if an adapter does not fit the base or cannot be merged exactly
    """
    tables = find_tables(base)
    head_name = tables.head  # the stored name
    if any(_unknown_names(base, adapter, tables) for adapter, _ in adapters):
        base = named_as_modules(base)
        tables = replace(tables, embed=base.modules.get(tables.embed, tables.embed))
    sources, steps = {}, {}
    for adapter, weight in adapters:
        if unknown := _unknown_names(base, adapter, tables):
            raise InputError(
                f"{adapter.file.path}: {len(unknown)} of "
                f"{len(adapter.factors) + len(adapter.saved) + len(adapter.rewritten)} adapted tensors are not in "
                f"{base.folder}, first {unknown[0]}; was the adapter trained on another base?"
            )
        if len(adapters) > 1 or weight != 1:
            _check_additive(adapter, weight)
        sources |= _sources(base, adapter, tables)
        for name, added_steps in adapter_steps(base, adapter, tables, weight).items():
            steps[name] = steps.get(name, []) + added_steps
    recipes = {
        name: replace(copy_of(tensor), source=sources.get(name, tensor), steps=tuple(steps.get(name, ())))
        for name, tensor in base.tensors.items()
    }
    tied = tables.tied and _stays_tied(recipes, base, sources, steps, tables)
    if tables.head in recipes and tables.head not in base.tensors:
        recipes[tables.head] = replace(recipes[tables.head], name=head_name)
    changed = tuple(
        name for name, recipe in recipes.items() if name not in base.tensors or recipe != copy_of(base.tensors[name])
    )
    if not changed:
        raise InputError(f"{adapters[0][0].file.path}: the adapter changes nothing in {base.folder}")
    for name in changed:
        if (stored_dtype := recipes[name].dtype) not in FLOATS:
            raise InputError(f"{base.folder}: {name}: expected {', '.join(FLOATS)}, found {stored_dtype}")
    stored = {recipe.name: recipe for recipe in recipes.values()}
    if dtype is not None:
        stored = {
            name: replace(recipe, dtype=DTYPES[dtype]) if recipe.dtype in FLOATS else recipe
            for name, recipe in stored.items()
        }
    return MergePlan(stored, tied, tables.tied, tuple(recipes[name].name for name in changed))


def _check_additive(adapter: Adapter, weight: float) -> None:
    """Refuse an adapter whose changes are not additive, so that they cannot be weighted or combined."""
    if not math.isfinite(weight):
        raise InputError(f"{adapter.folder}: its weight is {weight}, expected a finite number")
    replacing = [factors for factors in adapter.factors.values() if factors.magnitude or factors.token_rows]
    if replacing or adapter.saved or adapter.rewritten:
        raise InputError(
            f"{adapter.folder}: DoRA, modules_to_save, biases and trainable_token_indices replace weights instead of "
            "adding to them and cannot be weighted or combined with other adapters; merge it alone with weight 1"
        )


def _unknown_names(base: StoredCheckpoint, adapter: Adapter, tables: Tables) -> list[str]:
    """Return the names of tensors that an adapter changes and the base does not have."""
    wanted = {target_of(base, adapter, module) for module in adapter.factors}
    wanted |= adapter.saved.keys() | adapter.rewritten.keys()
    return sorted(wanted - base.tensors.keys() - ({tables.head} if tables.tied else set()))


def _sources(base: StoredCheckpoint, adapter: Adapter, tables: Tables) -> dict[str, TensorInfo]:
    """Return the tensors of the adapter that replace tensors of the base, by their name in the base."""
    sources = dict(adapter.rewritten)
    shared = sources.get(tables.embed) or sources.get(tables.head)
    if tables.tied and shared:
        sources[tables.embed] = sources[tables.head] = shared  # the tied tensor is stored once in the adapter too
    sources |= adapter.saved
    for name, tensor in sources.items():
        original = tables.source(base, name)
        if tensor.shape != original.shape or tensor.dtype not in FLOATS:
            raise InputError(
                f"{tensor.path}: {tensor.name} is {tensor.dtype} {list(tensor.shape)}, the base's {name} is "
                f"{original.dtype} {list(original.shape)}; merge into the base the adapter was trained on"
            )
    return sources


def _stays_tied(
    recipes: dict[str, Recipe],
    base: StoredCheckpoint,
    sources: dict[str, TensorInfo],
    steps: dict[str, list[Step]],
    tables: Tables,
) -> bool:
    """Return whether a tied pair stays equal; if not, add a recipe for the head, starting from the shared tensor."""
    name, embed, shared = tables.head, recipes[tables.embed], base.tensors[tables.embed]
    head = replace(embed, name=name, source=sources.get(name, shared), steps=tuple(steps.get(name, ())))
    equal = head.same_values(embed)
    if name in base.tensors and equal and not head.steps and head.source == shared:
        return True  # stored twice and unchanged
    if name in base.tensors or not equal:
        recipes[name] = replace(head, name=tables.source(base, name).name) if name in base.tensors else head
    return equal
