"""Compares every tensor of an export with what PEFT's own layers make of base and adapter, one layer at a time.

PEFT wraps a model whose weights take no memory and reads the adapter; then each wrapper in turn is given its base
weight in float32, merged by PEFT, compared and emptied. Nothing of our own planning is used: which modules are
adapted, their names, ranks, scales and order are PEFT's. Memory is a few times that of the largest adapted tensor.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coord_adapter.format import MODULE_NAME, is_guard
from coord_exporter.adapter import Adapter
from coord_exporter.checkpoint.modules import empty_model, named_as_modules
from coord_exporter.checkpoint.read import StoredCheckpoint, TensorInfo
from coord_exporter.checkpoint.recipe import read_float, read_rows, torch_dtype
from coord_exporter.checkpoint.staging import ExportError
from coord_exporter.verify import comparing
from coord_exporter.vocabulary import Tables, find_tables

if TYPE_CHECKING:
    import torch

# What a correct tensor may be off by, beside its rounding: a part of the largest change that the adapter makes to it,
# and of each value, for sums in another order.
_OF_EFFECT, _OF_VALUE = 1e-3, 4e-6

_INNER = (".base_layer", ".token_adapter", ".original_module", ".modules_to_save.default")


def verify_tensors(base: StoredCheckpoint, adapter: Adapter, out: StoredCheckpoint) -> dict:
    """Compare each tensor of an export with PEFT's, and the bytes of those that no adapter changes with the base's.

    Returns:
        `compared`, how many tensors PEFT changes; `largest_error`, over the largest change of the same tensor;
        `vanished`, those whose change is lost in the rounding of the checkpoint's type.

    Raises:
        ExportError: naming the first tensor that is wrong.
    """
    import torch

    with comparing():
        model = empty_model(base)
        names = named_as_modules(base, model).modules
    base, out = (replace(checkpoint, modules=names) for checkpoint in (base, out))
    tables = find_tables(base)
    compared, vanished, largest = set(), [], 0.0
    untouched = set(out.tensors)
    with warnings.catch_warnings(), torch.inference_mode(), comparing():
        warnings.simplefilter("ignore")
        for name, expected in _merged(base, adapter, model):
            if (stored := out.tensors.get(name)) is None:
                if name != tables.head:
                    raise ExportError(f"verify: {name} is missing in the export; nothing was written")
                stored = out.tensors[tables.embed]
            untouched.discard(name)
            error, effect, changed = _compare(expected, tables.source(base, name), stored)
            if effect:
                compared.add(stored.name)
                largest = max(largest, error / effect)
                vanished += [] if changed else [stored.name]
    for name in untouched:
        before, after = tables.source(base, name), out.tensors[name]
        if any(before.read(lo, hi) != after.read(lo, hi) for lo, hi in after.blocks()):
            raise ExportError(f"verify: {name} differs from the base's, which PEFT leaves alone; nothing was written")
    return {"compared": len(compared), "largest_error": largest, "vanished": vanished}


def verify_rows(base: StoredCheckpoint, adapter: Adapter, vanilla: Adapter) -> dict:
    """Let plain PEFT read an adapter without offsets of its own, and compare what it trains with base plus offsets.

    Args:
        base: the base, its tensors listed under the names of their modules
        adapter: the adapter with offsets
        vanilla: the adapter folder that was made of it

    Returns:
        `compared`, how many tensors PEFT changes; `largest_error`, over the largest change of the same tensor.

    Raises:
        ExportError: naming the first tensor that is wrong.
    """
    import torch

    tables = find_tables(base)
    wanted = dict.fromkeys([tables.embed] if tables.tied else [tables.embed, tables.head])
    rows, compared, largest = _offset_rows(adapter, tables.embed, tables.head), 0, 0.0
    with warnings.catch_warnings(), torch.inference_mode(), comparing():
        warnings.simplefilter("ignore")
        for name, found in _merged(base, vanilla, empty_model(base)):
            compared += 1
            if name not in wanted:
                continue
            source = tables.source(base, name)
            before = read_float(source)
            expected = rows(name, before)
            effect = float((expected - before).abs().max())
            error = (found - expected).abs() - (expected.to(torch_dtype(source.dtype)).float() - expected).abs()
            if not float(error.max()) <= _OF_EFFECT * effect:
                raise ExportError(f"verify: plain PEFT reads other rows of {name}; nothing was written")
            largest = max(largest, float(error.max()) / effect if effect else 0.0)
            wanted.pop(name)
    if wanted:
        raise ExportError(f"verify: plain PEFT trains no row of {next(iter(wanted))}; nothing was written")
    return {"compared": compared, "largest_error": largest}


def _merged(base: StoredCheckpoint, adapter: Adapter, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and float32 value of each tensor that the adapter touches, as PEFT and the offsets make it."""
    from peft import PeftConfig, PeftModel
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    config: Any = PeftConfig.from_pretrained(adapter.folder)
    if adapter.offsets is not None:
        rest = {name: ids for name, ids in (config.trainable_token_indices or {}).items() if not is_guard(name)}
        config.trainable_token_indices = rest or None
        config.modules_to_save = [name for name in config.modules_to_save or () if name != MODULE_NAME] or None
    hollow = _hollow_out(model)
    tables = find_tables(base)
    tied = {tables.embed, tables.head} if tables.tied else set()
    peft_model = PeftModel.from_pretrained(model, str(adapter.folder), config=config, low_cpu_mem_usage=True)
    inner = peft_model.base_model.model
    rows = _offset_rows(adapter, tables.embed, tables.head)
    wrapped: set[str] = set()
    for path, module in list(inner.named_modules()):
        if not isinstance(module, (BaseTunerLayer, AuxiliaryTrainingWrapper)) or any(
            path.startswith(f"{outer}.") for outer in wrapped
        ):
            continue
        wrapped.add(path)
        plain = _merge(base, path, module, tables, hollow)
        for name, value in list(plain.named_parameters()):
            if not hollow(value):
                yield f"{path}.{name}", rows(f"{path}.{name}", value.data.float())
                owner, _, leaf = name.rpartition(".")
                setattr(plain.get_submodule(owner), leaf, None)
    for path, value in inner.named_parameters():
        inside = any(path.startswith(f"{outer}.") for outer in wrapped)
        if not inside and not hollow(value):
            for name in tied if path in tied else {path}:
                if name.rpartition(".")[0] not in wrapped:
                    yield name, rows(name, value.data.float())
                    wrapped.add(name.rpartition(".")[0])
    for name in (tables.embed, tables.head) if adapter.offsets is not None else ():
        if name.rpartition(".")[0] not in wrapped:
            yield name, rows(name, read_float(tables.source(base, name)))


def _hollow_out(model: Any) -> Callable[[torch.Tensor], bool]:
    """Give a model without weights zeros that take no memory: PEFT moves what it loads to the device of the weights.

    Returns:
        A function that tells these zeros from weights.
    """
    import torch

    zero, made = torch.zeros(1), {}
    old = dict(model.named_parameters(remove_duplicate=False))
    for name, value in old.items():
        if value not in made:
            made[value] = torch.nn.Parameter(zero.expand(value.shape), requires_grad=False)
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, made[value])
    return lambda value: value.data_ptr() == zero.data_ptr()


def _merge(
    base: StoredCheckpoint, path: str, module: Any, tables: Tables, hollow: Callable[[torch.Tensor], bool]
) -> Any:
    """Fill a wrapper with its base weights and merge it, as `merge_and_unload` does; returns the module below."""
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    for name, value in list(module.named_parameters()):
        full = f"{path}.{name}"
        for part in _INNER:
            full = full.replace(part, "")
        if hollow(value) and (full in base.tensors or full == tables.head):
            owner = module.get_submodule(name.rpartition(".")[0])
            stored = tables.source(base, full)
            weight = read_float(stored)
            if weight.shape != value.shape:
                weight = weight.mT.contiguous()
            setattr(owner, name.rpartition(".")[2], torch.nn.Parameter(weight, requires_grad=False))
    while isinstance(module, (BaseTunerLayer, AuxiliaryTrainingWrapper)):
        if hasattr(module, "unload_and_optionally_merge_module"):
            module = module.unload_and_optionally_merge_module(merge=True, safe_merge=False, adapter_names=None)
        else:
            module.merge()
            module = module.get_base_layer()
    return module


def _offset_rows(adapter: Adapter, embed: str, head: str) -> Any:
    """Return a function that adds the coordinate offsets to the rows of embedding and head."""
    import torch

    offsets = adapter.offsets

    def add(name: str, value: torch.Tensor) -> torch.Tensor:
        if offsets is None or name not in (embed, head):
            return value
        table = offsets.embed if name == embed else offsets.head or offsets.embed
        return value.index_add(0, torch.tensor(offsets.ids), read_float(table))

    return add


def _compare(expected: torch.Tensor, before: TensorInfo, after: TensorInfo) -> tuple[float, float, bool]:
    """Return the largest error beside rounding, the largest change that PEFT makes, and whether the export has any.

    Raises:
        ExportError: if the error is beyond the tolerance.
    """
    if len(expected.shape) == 3 and expected.shape != after.shape:
        expected = expected.mT
    largest = effect = 0.0
    excess, changed, dtype = 0.0, False, torch_dtype(after.dtype)
    for lo, hi in after.blocks():
        rows = expected[lo:hi]
        found, old = read_rows(after, lo, hi), read_rows(before, lo, hi)
        error = (found - rows).abs() - (rows.to(dtype).float() - rows).abs()
        largest = max(largest, float(error.max()))
        effect = max(effect, float((rows - old).abs().max()))
        excess = max(excess, float((error - _OF_VALUE * rows.abs()).max()))
        changed = changed or not bool((found == old).all())
    if not excess <= _OF_EFFECT * effect:
        raise ExportError(
            f"verify: {after.name} differs from PEFT's by {largest:.3g} beside rounding, where the adapter "
            f"changes it by {effect:.3g}; nothing was written. The export is wrong, or the adapter acts "
            "differently when merged: please report it"
        )
    return largest, effect, changed
