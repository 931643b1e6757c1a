"""Plans a merge: from which stored tensor and by which steps every output tensor is computed. Nothing is written.

All shapes are checked here, so that an adapter that does not fit is refused before the first byte is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from coord_adapter.format import problem_with_ids
from coord_codec.files import InputError
from coord_exporter.adapter import Adapter, Factors
from coord_exporter.checkpoint.modules import empty_model, named_as_modules, renamed_modules
from coord_exporter.checkpoint.read import FLOATS, StoredCheckpoint, TensorInfo
from coord_exporter.checkpoint.recipe import Recipe, Step, copy_of, same_values
from coord_exporter.steps import BiasStep, ExpertStep, LoraStep, RowsStep, same_changes
from coord_exporter.vocabulary import DTYPES, Tables, find_tables

_NAMED = ("factors", "saved", "rewritten")  # what an adapter lists by names of the base's modules or tensors
_OTHER_BASE = "was the adapter trained on another base?"


@dataclass(frozen=True)
class MergePlan:
    """The tensors of the output.

    Attributes:
        recipes: recipe of each tensor by name, in the base's order; a new head comes last
        tied: whether embedding and head are tied in the output
        was_tied: whether they are tied in the base
        changed: names of the tensors that are not copied from the base
        notes: what the adapter's file lacks
    """

    recipes: dict[str, Recipe]
    tied: bool
    was_tied: bool
    changed: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def untied(self) -> bool:
        """Whether a separate head is written although the base ties it."""
        return self.was_tied and not self.tied


def plan_merge(
    base: StoredCheckpoint, adapter: Adapter, dtype: str | None = None, *, keep_lora: bool = False
) -> MergePlan:
    """Plan how every output tensor is computed; without a `dtype` weights keep theirs.

    `keep_lora` leaves out factors of layers other than embedding and head, for an adapter of the output.

    Raises:
        InputError: naming the tensor, if the adapter does not fit the base or cannot be merged exactly
    """
    # PEFT's names are those of transformers' modules. Where the base stores others, it is read under PEFT's.
    tables = find_tables(base)
    stored_head = tables.head
    if _unknown_names(base, adapter, tables):
        base = named_as_modules(base)
        adapter = _with_todays_names(base, adapter)
        tables = find_tables(base)
    if unknown := _unknown_names(base, adapter, tables):
        _refuse_combined(base, adapter, unknown)
        adapted = len(adapter.factors) + len(adapter.saved) + len(adapter.rewritten)
        raise InputError(
            f"{adapter.file.path}: {len(unknown)} of {adapted} adapted tensors are not in {base.folder}, first "
            f"{unknown[0]}; {_OTHER_BASE}"
        )

    if lost := _lost_factors(base, adapter):
        raise InputError(
            f"{adapter.file.path}: expected factors of all layers in target_modules, found none of {len(lost)}, "
            f"first {lost[0]}; save the adapter again"
        )

    # A tensor starts from the base's or from its replacement in the adapter, and the adapter's steps follow.
    sources = _sources(base, adapter, tables)
    steps = adapter_steps(base, adapter, tables)
    if keep_lora:
        steps = {name: steps[name] for name in (tables.embed, tables.head) if name in steps}
    steps, notes = _without_nothing(adapter, steps, sources)
    recipes = {
        name: replace(copy_of(tensor), source=sources.get(name, tensor), steps=tuple(steps.get(name, ())))
        for name, tensor in base.tensors.items()
    }
    tied = tables.tied and _stays_tied(recipes, base, sources, steps, tables)
    if tables.head in recipes and tables.head not in base.tensors:
        recipes[tables.head] = replace(recipes[tables.head], name=stored_head)

    changed = [name for name, recipe in recipes.items() if recipe != _copy_in(base, name)]
    if not changed and not notes:
        hint = "; without offsets it can be served beside it as it is" if keep_lora else ""
        raise InputError(f"{adapter.file.path}: the adapter changes nothing in {base.folder}{hint}")
    for name in changed:
        if (found := recipes[name].dtype) not in FLOATS:
            raise InputError(f"{base.folder}: {name}: expected {', '.join(FLOATS)}, found {found}")
    names = tuple(recipes[name].name for name in changed)
    stored = {recipe.name: _in_dtype(recipe, dtype) for recipe in recipes.values()}
    return MergePlan(stored, tied, tables.tied, names, (*_lost_biases(base, adapter), *notes))


def _without_nothing(
    adapter: Adapter, steps: dict[str, list[Step]], sources: dict[str, TensorInfo]
) -> tuple[dict[str, list[Step]], tuple[str, ...]]:
    """Return the steps that change values, and a note on tensors of which none is left."""
    kept = {name: [step for step in found if not step.is_nothing] for name, found in steps.items()}
    nothing = sorted(name for name in kept if not kept[name] and name not in sources)
    if not nothing:
        return kept, ()
    if len(nothing) == len(steps.keys() | sources.keys()):
        what = "the adapter changes nothing: all its B factors and offsets are 0"
    else:
        what = (
            f"{len(nothing)} of {len(steps)} adapted tensors do not change, the first {nothing[0]}: what is added is 0"
        )
    return kept, (f"{adapter.file.path}: {what}; was it trained, and saved after training?",)


def _copy_in(base: StoredCheckpoint, name: str) -> Recipe | None:
    """Return the recipe of an unchanged copy; None for a tensor that the base does not have."""
    return copy_of(base.tensors[name]) if name in base.tensors else None


def _in_dtype(recipe: Recipe, dtype: str | None) -> Recipe:
    return recipe if dtype is None or recipe.dtype not in FLOATS else replace(recipe, dtype=DTYPES[dtype])


def _refuse_combined(base: StoredCheckpoint, adapter: Adapter, unknown: list[str]) -> None:
    """Raise an InputError for an adapted layer that the model has and the files hold in several tensors."""
    layers = {f"{name}.weight" for name, _ in empty_model(base).named_modules()}
    if combined := sorted(layers.intersection(unknown)):
        raise InputError(
            f"{adapter.file.path}: {combined[0]} is one matrix in transformers' model and joined or split in the "
            f"files of {base.folder}, so that its LoRA cannot be merged exactly; leave it out of target_modules"
        )


def _with_todays_names(base: StoredCheckpoint, adapter: Adapter) -> Adapter:
    """Return an adapter whose modules have the names that transformers gives them since 4.52."""
    tensors = (*adapter.saved, *adapter.rewritten)
    modules = {module.replace(".base_layer", "") for module in adapter.factors}
    modules |= {name.rpartition(".")[0] for name in tensors}
    renamed = renamed_modules(empty_model(base), modules)

    def name_of(name: str) -> str:
        module, dot, leaf = name.rpartition(".")
        return renamed.get(name) or f"{renamed.get(module, module)}{dot}{leaf}"

    parts: dict[str, Any] = {
        part: {name_of(name): value for name, value in getattr(adapter, part).items()} for part in _NAMED
    }
    return replace(adapter, **parts)


def _lost_factors(base: StoredCheckpoint, adapter: Adapter) -> list[str]:
    """Return the linear layers that PEFT adapted according to the settings and of which the file has no factors."""
    layers = {
        name.removesuffix(".weight")
        for name, tensor in base.tensors.items()
        if name.endswith(".weight") and len(tensor.shape) == 2
    }
    there = {module.replace(".base_layer", "") for module in adapter.factors}
    there |= {name.rpartition(".")[0] for name in adapter.saved}
    lost = {module for module in layers - there if adapter.config.targets(module)}
    if lost:
        # transformers does not load all that a checkpoint stores, such as `mtp.*`. PEFT adapts the output layer of
        # torch's MultiheadAttention, as in SigLIP's head; ms-swift, once it is imported, keeps PEFT from it.
        kinds = {name: type(module).__name__ for name, module in empty_model(base).named_modules()}
        lost &= {name for name, kind in kinds.items() if kind != "NonDynamicallyQuantizableLinear"}
    return sorted(lost)


def _lost_biases(base: StoredCheckpoint, adapter: Adapter) -> tuple[str, ...]:
    """Return a note if biases of the base were trained and are not in the adapter's file."""
    kind = adapter.config.bias
    trained = {
        "none": set(),
        "lora_only": {f"{module}.bias" for module in adapter.factors},
        "all": {name for name in base.tensors if name.endswith(".bias")},
    }[kind]
    if not (lost := (trained & base.tensors.keys()) - adapter.rewritten.keys() - adapter.saved.keys()):
        return ()
    return (
        f"{adapter.config.path}: bias: {kind!r} trained {len(lost)} biases, the first {min(lost)}, and the adapter's "
        "file has none of them (PEFT before 0.21 does not save those of 'lora_only'): the export keeps the base's",
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
    name = tables.head
    embed = recipes[tables.embed]
    shared = base.tensors[tables.embed]
    head = replace(embed, name=name, source=sources.get(name, shared), steps=tuple(steps.get(name, ())))
    alike = replace(head, name=embed.name, steps=embed.steps, source=embed.source) == embed
    # With `ensure_weight_tying` PEFT stores a saved table twice.
    same_source = head.source == embed.source or same_values(head.source, embed.source)
    equal = alike and same_source and same_changes(embed.steps, head.steps)
    if equal:
        head = replace(head, steps=embed.steps, source=embed.source)
    if name in base.tensors and equal and not head.steps and head.source == shared:
        return True  # stored twice and unchanged
    if name in base.tensors or not equal:
        recipes[name] = replace(head, name=tables.source(base, name).name) if name in base.tensors else head
    return equal


def adapter_steps(base: StoredCheckpoint, adapter: Adapter, tables: Tables) -> dict[str, list[Step]]:
    """Return the steps of each tensor that an adapter changes, by tensor name; offsets come last.

    Raises:
        InputError: naming the module, for factors that do not fit or cannot be merged exactly
    """
    steps: dict[str, list[Step]] = {}
    # Trained rows come first: PEFT adds the low-rank product of a tied head to the embedding's trained rows.
    for module, factors in sorted(adapter.factors.items(), key=lambda item: item[1].token_rows is None):
        name = target_of(base, adapter, module)
        weight = tables.source(base, name)
        if len(weight.shape) == 3:
            steps.setdefault(name, []).append(_expert_step(adapter, name, factors, weight))
        elif factors.token_rows is None:
            step: Step = _lora_step(adapter, module, factors, weight, tables)
            steps.setdefault(name, []).append(step)
        else:
            step = _token_rows_step(adapter, module, factors.token_rows, factors, weight)
            head_shares = name == tables.embed and _head_shares_rows(adapter, tables)
            for target in {name, tables.head} if head_shares else {name}:
                steps.setdefault(target, []).append(step)
        if adapter.config.lora_bias or factors.bias is not None:
            steps.setdefault(f"{module}.bias", []).append(_bias_step(base, adapter, module, factors.bias))
    for name, step in offset_steps(base, adapter, tables).items():
        steps.setdefault(name, []).append(step)
    return steps


def target_of(base: StoredCheckpoint, adapter: Adapter, module: str) -> str:
    """Return the tensor that a module's factors change: its weight, or the matching one of `target_parameters`.

    If several parameters of a module are adapted, PEFT nests their wrappers under the name `base_layer`.
    """
    plain, factors = module.replace(".base_layer", ""), adapter.factors[module]
    for parameter in adapter.config.target_parameters:
        name = f"{plain}.{parameter.rpartition('.')[2]}"
        tensor = base.tensors.get(name) if f".{name}".endswith(f".{parameter}") else None
        if tensor is not None and factors.a is not None and factors.b is not None and len(tensor.shape) == 3:
            widths = (factors.b.shape[0], factors.a.shape[-1])
            if tensor.shape[1:] in (widths, widths[::-1]):
                return name
    return f"{plain}.weight"


def _expert_step(adapter: Adapter, name: str, factors: Factors, weight: TensorInfo) -> ExpertStep:
    where = f"{adapter.file.path}: {name}"
    experts, rank = weight.shape[0], adapter.config.rank(name)
    a, b = factors.a, factors.b
    if a is None or b is None or factors.magnitude is not None or factors.bias is not None:
        raise InputError(f"{where}: expected two factors for the experts; save the adapter again")
    if a.shape[0] != rank * experts or b.shape[1] != rank * experts:
        raise InputError(
            f"{where}: factors {list(b.shape)} x {list(a.shape)} of rank {rank} do not fit the base's "
            f"{list(weight.shape)}; {_OTHER_BASE}"
        )
    widths = (b.shape[0], a.shape[1])
    if widths[0] == widths[1]:
        raise InputError(f"{where}: the experts' matrices are square: cannot tell whether they are transposed")
    return ExpertStep(a, b, adapter.config.scale(name), experts, transposed=weight.shape[1:] != widths)


def _lora_step(adapter: Adapter, module: str, factors: Factors, weight: TensorInfo, tables: Tables) -> LoraStep:
    where = f"{adapter.file.path}: {module}"
    config = adapter.config
    embedding = factors.embedding_a is not None or factors.embedding_b is not None
    a, b = (factors.embedding_a, factors.embedding_b) if embedding else (factors.a, factors.b)
    magnitude = factors.magnitude
    if a is None or b is None:
        raise InputError(f"{where}: a LoRA factor is missing; save the adapter again")
    if not len(a.shape) == len(b.shape) == len(weight.shape) == 2:
        raise InputError(f"{where}: LoRA of a layer that is not a matrix cannot be merged exactly")
    if magnitude is not None and (embedding or f"{module}.weight" in (tables.embed, tables.head)):
        raise InputError(f"{where}: DoRA on the embedding or the head cannot be merged exactly; use LoRA there")
    if config.use_dora != (magnitude is not None):
        found = "no" if config.use_dora else "a"
        raise InputError(f"{where}: use_dora is {config.use_dora}, but there is {found} magnitude vector")
    rank = config.rank(module)
    rows, columns = weight.shape[::-1] if embedding else weight.shape
    if a.shape != (rank, columns) or b.shape != (rows, rank):
        raise InputError(
            f"{where}: factors {list(b.shape)} x {list(a.shape)} of rank {rank} do not fit the base's weight "
            f"{list(weight.shape)}; {_OTHER_BASE}"
        )
    if magnitude is not None and magnitude.shape not in ((rows,), (rows, 1), (1, rows)):
        raise InputError(f"{where}: magnitude {list(magnitude.shape)}, expected {rows} values")
    return LoraStep(a, b, config.scale(module), magnitude, transposed=embedding)


def _bias_step(base: StoredCheckpoint, adapter: Adapter, module: str, bias: TensorInfo | None) -> BiasStep:
    where = f"{adapter.file.path}: {module}"
    stored = base.tensors.get(f"{module}.bias")
    if bias is None or not adapter.config.lora_bias:
        raise InputError(f"{where}: lora_bias in the configuration and lora_B.bias in the weights disagree")
    if stored is None:
        raise InputError(f"{where}: lora_bias cannot be merged, the base's layer has no bias")
    if stored.shape != bias.shape:
        raise InputError(f"{where}: bias {list(bias.shape)} on {list(stored.shape)}; {_OTHER_BASE}")
    return BiasStep(bias, adapter.config.scale(module))


def _token_rows_step(
    adapter: Adapter, module: str, table: TensorInfo, factors: Factors, weight: TensorInfo
) -> RowsStep:
    if any((factors.a, factors.b, factors.embedding_a, factors.embedding_b)):
        raise InputError(
            f"{adapter.file.path}: {module}: LoRA and trainable_token_indices on one module cannot be merged exactly"
        )
    return RowsStep(trained_ids(adapter, module, table, weight), table)


def trained_ids(adapter: Adapter, module: str, table: TensorInfo, weight: TensorInfo) -> tuple[int, ...]:
    """Return the ids of a module's trained rows, in the order of their table.

    Raises:
        InputError: if the configuration has no or several lists for the module, or the list does not fit table and base
    """
    where = f"{adapter.config.path}: trainable_token_indices"
    lists = [ids for name, ids in adapter.config.trainable_token_indices.items() if module.endswith(name)]
    if len(lists) != 1:
        raise InputError(f"{where}: expected one entry for {module}, found {len(lists)}")
    if problem := problem_with_ids(lists[0], weight.rows):
        raise InputError(f"{where}: {problem}")
    if table.shape != (len(lists[0]), *weight.shape[1:]):
        raise InputError(
            f"{adapter.file.path}: {table.name} is {list(table.shape)}, expected {len(lists[0])} rows of the base's "
            f"{list(weight.shape)}; {_OTHER_BASE}"
        )
    return lists[0]


def _head_shares_rows(adapter: Adapter, tables: Tables) -> bool:
    """Return whether a tied head uses the embedding's trained rows, as in PEFT if it has none of its own."""
    head = adapter.factors.get(tables.head.removesuffix(".weight"))
    return tables.tied and (head is None or head.token_rows is None)


def offset_steps(base: StoredCheckpoint, adapter: Adapter, tables: Tables) -> dict[str, RowsStep]:
    """Return the step of the offsets, if they fit, for embedding and head; empty without offsets."""
    offsets = adapter.offsets
    if offsets is None or not offsets.ids:
        return {}
    steps = {}
    for name, table in ((tables.embed, offsets.embed), (tables.head, offsets.head or offsets.embed)):
        weight = tables.source(base, name)
        if problem := problem_with_ids(offsets.ids, weight.rows):
            raise InputError(f"{adapter.file.path}: {problem}")
        if table.shape[1:] != weight.shape[1:]:
            raise InputError(
                f"{table.path}: {table.name} has rows of {table.shape[1]} values, the base's {name} of "
                f"{weight.shape[1]}; {_OTHER_BASE}"
            )
        steps[name] = RowsStep(offsets.ids, table, added=True)
    return steps
