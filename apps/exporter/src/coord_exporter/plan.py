"""What a merge does to each tensor, decided and checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .adapter import Adapter
from .checkpoint import FLOATS, Checkpoint, TensorInfo
from .errors import InputError
from .module_steps import check_ids, module_steps
from .offsets import OffsetStep
from .recipe import Recipe, Step, copy_of
from .tables import HEAD, Tables, find_tables


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


def plan_merge(base: Checkpoint, adapter: Adapter) -> MergePlan:
    """Decide how every output tensor is made.

    Raises:
        InputError: naming the tensor, if the adapter does not fit the base or cannot be merged exactly.
    """
    tables = find_tables(base)
    _refuse_strangers(base, adapter, tables)
    sources = _sources(base, adapter, tables)
    steps = module_steps(base, adapter, tables)
    _add_offsets(steps, base, adapter, tables)
    recipes = {
        name: replace(copy_of(tensor), source=sources.get(name, tensor), steps=tuple(steps.get(name, ())))
        for name, tensor in base.tensors.items()
    }
    tied = tables.tied and _stays_tied(recipes, base, sources, steps, tables)
    changed = tuple(
        name
        for name, recipe in recipes.items()
        if name not in base.tensors or recipe != copy_of(base.tensors[name])
    )
    if not changed:
        raise InputError(f"{adapter.file.path}: the adapter changes nothing in {base.folder}")
    for name in changed:
        if recipes[name].dtype not in FLOATS:
            raise InputError(
                f"{base.folder}: {name}: expected {', '.join(FLOATS)}, found {recipes[name].dtype}"
            )
    return MergePlan(recipes, tied, tables.tied, changed)


def _refuse_strangers(base: Checkpoint, adapter: Adapter, tables: Tables) -> None:
    """Everything in the adapter must belong to a tensor of the base."""
    wanted = (
        {f"{module}.weight" for module in adapter.factors} | adapter.saved.keys() | adapter.rewritten.keys()
    )
    known = base.tensors.keys() | ({HEAD} if tables.tied else set())
    if strangers := sorted(wanted - known):
        raise InputError(
            f"{adapter.file.path}: {len(strangers)} of {len(wanted)} adapted tensors are not in "
            f"{base.folder}, first {strangers[0]}; was the adapter trained on another base?"
        )


def _sources(base: Checkpoint, adapter: Adapter, tables: Tables) -> dict[str, TensorInfo]:
    """Tensors that start from a copy in the adapter instead of the base's own."""
    sources = dict(adapter.rewritten)
    shared = sources.get(tables.embed) or sources.get(HEAD)
    if tables.tied and shared:
        sources[tables.embed] = sources[HEAD] = shared  # one tensor in the base, one in its copy
    sources |= adapter.saved
    for name, tensor in sources.items():
        original = base.tensors.get(name) or base.tensors[tables.embed]
        if tensor.shape != original.shape or tensor.dtype not in FLOATS:
            raise InputError(
                f"{tensor.path}: {tensor.name} is {tensor.dtype} {list(tensor.shape)}, the base's {name} is "
                f"{original.dtype} {list(original.shape)}; merge into the base the adapter was trained on"
            )
    return sources


def _add_offsets(steps: dict[str, list[Step]], base: Checkpoint, adapter: Adapter, tables: Tables) -> None:
    """Offsets come last, so that everything is summed in float32 and rounded once."""
    offsets = adapter.offsets
    if offsets is None or not offsets.ids:
        return
    head_table = offsets.head or offsets.embed
    for name, table in ((tables.embed, offsets.embed), (HEAD, head_table)):
        weight = base.tensors.get(name) or base.tensors[tables.embed]
        check_ids(f"{adapter.file.path}: token_ids", offsets.ids, weight.rows)
        if table.shape[1:] != weight.shape[1:]:
            raise InputError(
                f"{table.path}: {table.name} has rows of {table.shape[1]} values, the base's {name} of "
                f"{weight.shape[1]}; was the adapter trained on another base?"
            )
        steps.setdefault(name, []).append(OffsetStep(offsets.ids, table))


def _stays_tied(
    recipes: dict[str, Recipe],
    base: Checkpoint,
    sources: dict[str, TensorInfo],
    steps: dict[str, list[Step]],
    tables: Tables,
) -> bool:
    """Whether a tied pair comes out equal; else the head gets a recipe of its own, from the shared tensor."""
    embed, shared = recipes[tables.embed], base.tensors[tables.embed]
    head = replace(embed, name=HEAD, source=sources.get(HEAD, shared), steps=tuple(steps.get(HEAD, ())))
    equal = head.same_values(embed)
    if HEAD in base.tensors and equal and not head.steps and head.source == shared:
        return True  # stored twice, and untouched
    if HEAD in base.tensors or not equal:
        recipes[HEAD] = head
    return equal
