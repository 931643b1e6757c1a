"""`merge`: base + adapter -> checkpoint. Every tensor is planned and checked before anything is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coord_codec.files import InputError
from coord_exporter.adapter import Adapter, open_adapter
from coord_exporter.asking import bring_card
from coord_exporter.card import BASE_CARD, write_card
from coord_exporter.checkpoint.folder import Export, find_companions, history_of, sha256_of, write_export
from coord_exporter.checkpoint.modules import named_as_modules
from coord_exporter.checkpoint.read import FLOATS, StoredCheckpoint, TensorInfo, open_checkpoint
from coord_exporter.checkpoint.recipe import Recipe, Step, copy_of
from coord_exporter.checkpoint.staging import check_out
from coord_exporter.plan import adapter_steps, target_of
from coord_exporter.sources import find_adapter, find_folder
from coord_exporter.vocabulary import DTYPES, Tables, check_fingerprint, find_tables, set_dtype, set_tied

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


@dataclass(frozen=True)
class MergePlan:
    """The output's tensors.

    Attributes:
        recipes: by name, in the base's order; a new head comes last.
        tied: whether embedding and head are one in the output.
        was_tied: whether they are one in the base.
        changed: names of the tensors that are not copied from the base.
    """

    recipes: dict[str, Recipe]
    tied: bool
    was_tied: bool
    changed: tuple[str, ...]

    @property
    def untied(self) -> bool:
        """Whether a head of its own is written for a base that tied it."""
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
        base: the checkpoint folder the adapter was trained on, or a hub id that the hub's cache holds
        adapter: the adapter folder, or that of a training run, or a hub id
        out: the folder to make; it appears complete or not at all
        force: whether an existing folder is replaced that an export wrote
        max_shard_size: bytes of tensors per file; None keeps the base's files
        verify: whether to compare every tensor with PEFT's, and up to 1 GiB logits and greedy tokens too; None for
            bases up to 1 GiB
        quiet: whether to show no progress
        dtype: "bfloat16", "float16" or "float32" for all weights; None keeps the base's types
        weight: what the adapter's changes are multiplied by
        add: further adapters of the same base with the weights of their changes

    Raises:
        InputError: for anything about the inputs that forbids an exact merge; nothing was written.
        ExportError: if writing or verifying fails; nothing was written.
    """
    name, out, base = str(base), Path(out), find_folder(base)
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"--dtype: expected one of {', '.join(DTYPES)}, found {dtype!r}")
    found = [find_adapter(folder) for folder in (adapter, *(folder for folder, _ in add))]
    warnings = check_out(out, (base, *(folder for folder, _ in found)), force) + [note for _, note in found if note]
    checkpoint = open_checkpoint(base)
    opened = [(open_adapter(folder), share) for (folder, _), (_, share) in zip(found, ((0, weight), *add), strict=True)]
    first, sources = opened[0][0], [_source(base, one, share) for one, share in opened]
    plan = plan_merge(checkpoint, opened, dtype)
    companions, notes = find_companions(checkpoint, first.folder)
    warnings += notes
    notes, rewritten = bring_card([one for one, _ in opened], companions)
    warnings += notes
    fingerprints = {carried for one, _ in opened if (carried := one.fingerprint()) is not None}
    if len(fingerprints) > 1:
        raise InputError(f"{adapter}: its vocabulary is another than that of an adapter beside it: {fingerprints}")
    carried = next(iter(fingerprints), None)
    if (any(one.offsets for one, _ in opened) or carried) and (note := check_fingerprint(base, carried)):
        warnings.append(note)
    if plan.untied:
        warnings.append(
            "embedding and head come out different: lm_head.weight is written, tie_word_embeddings is false"
        )
    entry = {"kind": "merge", "adapter": sources[0], "fingerprint": carried, "tied": plan.tied}
    entry |= {"changed_tensors": len(plan.changed)} | ({"added": sources[1:]} if add else {})
    if (own := companions.pop("README.md", None)) is not None:
        companions[BASE_CARD] = own
    facts = {"fingerprint": carried, "changed tensors": f"{len(plan.changed)} of {len(plan.recipes)}"}
    if add:
        facts["adapters and weights"] = ", ".join(f"{one.folder.name} {share:g}" for one, share in opened)
    card = write_card(checkpoint, name, first, facts)
    config = set_tied(checkpoint.config, False) if plan.untied else checkpoint.config
    config = config if dtype is None else set_dtype(config, dtype)

    def check(stage: Path) -> dict:
        from coord_exporter.verify.tensors import verify_tensors

        figures = verify_tensors(checkpoint, opened, open_checkpoint(stage))
        if vanished := figures.pop("vanished"):
            warnings.append(
                f"{len(vanished)} of {figures['compared']} changes are lost in the rounding of the weights' type, "
                f"first that of {vanished[0]}: the adapter is too weak for it"
            )
        if checkpoint.nbytes <= _VERIFIED_BYTES and [share for _, share in opened] == [1]:
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
    """Return what the record says of an adapter.

    Raises:
        InputError: if the base's record says that it is merged already.
    """
    path = adapter.file.path
    digest = sha256_of(path)
    merges = [entry for entry in history_of(base) if entry.get("kind") == "merge"]
    merged = [one for entry in merges for one in (entry.get("adapter", {}), *entry.get("added", ()))]
    if any(one.get(path.name) == digest for one in merged):
        raise InputError(f"{adapter.folder}: is merged into {base} already (its export.json says so)")
    stated = {"name": adapter.folder.name, path.name: digest, adapter.config.path.name: sha256_of(adapter.config.path)}
    return stated | ({} if weight == 1 else {"weight": weight})


def plan_merge(
    base: StoredCheckpoint, adapters: Sequence[tuple[Adapter, float]], dtype: str | None = None
) -> MergePlan:
    """Decide how every output tensor is made.

    Args:
        base: the base
        adapters: each with the weight of its changes
        dtype: of all weights; None keeps their types

    Raises:
        InputError: naming the tensor, if an adapter does not fit the base or cannot be merged exactly.
    """
    tables = find_tables(base)
    head_name = tables.head  # as it is stored
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
            _check_sums(adapter, weight)
        sources |= _sources(base, adapter, tables)
        for name, found in adapter_steps(base, adapter, tables, weight).items():
            steps[name] = steps.get(name, []) + found
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
        if (found := recipes[name].dtype) not in FLOATS:
            raise InputError(f"{base.folder}: {name}: expected {', '.join(FLOATS)}, found {found}")
    stored = {recipe.name: recipe for recipe in recipes.values()}
    if dtype is not None:
        stored = {
            name: replace(recipe, dtype=DTYPES[dtype]) if recipe.dtype in FLOATS else recipe
            for name, recipe in stored.items()
        }
    return MergePlan(stored, tied, tables.tied, tuple(recipes[name].name for name in changed))


def _check_sums(adapter: Adapter, weight: float) -> None:
    """Refuse an adapter with changes that are no sums: weighted, or beside another's, they mean nothing."""
    if not math.isfinite(weight):
        raise InputError(f"{adapter.folder}: its weight is {weight}, expected a finite number")
    others = [factors for factors in adapter.factors.values() if factors.magnitude or factors.token_rows]
    if others or adapter.saved or adapter.rewritten:
        raise InputError(
            f"{adapter.folder}: DoRA, modules_to_save, biases and trainable_token_indices replace weights instead of "
            "adding to them, so that several adapters or a weight have no meaning; merge it alone with weight 1"
        )


def _unknown_names(base: StoredCheckpoint, adapter: Adapter, tables: Tables) -> list[str]:
    """Return the names of an adapter's tensors that belong to none of the base."""
    wanted = {target_of(base, adapter, module) for module in adapter.factors}
    wanted |= adapter.saved.keys() | adapter.rewritten.keys()
    return sorted(wanted - base.tensors.keys() - ({tables.head} if tables.tied else set()))


def _sources(base: StoredCheckpoint, adapter: Adapter, tables: Tables) -> dict[str, TensorInfo]:
    """Tensors that start from a copy in the adapter instead of the base's own."""
    sources = dict(adapter.rewritten)
    shared = sources.get(tables.embed) or sources.get(tables.head)
    if tables.tied and shared:
        sources[tables.embed] = sources[tables.head] = shared  # one tensor in the base, one in its copy
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
    """Whether a tied pair comes out equal; else the head gets a recipe of its own, from the shared tensor."""
    name, embed, shared = tables.head, recipes[tables.embed], base.tensors[tables.embed]
    head = replace(embed, name=name, source=sources.get(name, shared), steps=tuple(steps.get(name, ())))
    equal = head.same_values(embed)
    if name in base.tensors and equal and not head.steps and head.source == shared:
        return True  # stored twice, and untouched
    if name in base.tensors or not equal:
        recipes[name] = replace(head, name=tables.source(base, name).name) if name in base.tensors else head
    return equal
