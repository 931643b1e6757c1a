"""Compares every tensor of an export with the merge by PEFT's own layers, one layer at a time.

PEFT loads the adapter on a model whose weights take no memory. Then each wrapper in turn gets its base weight in
float32, is merged by PEFT, compared and emptied. None of our planning is used: PEFT decides which modules are adapted,
and their names, ranks, scales and order. Peak memory is a few times that of the largest adapted tensor.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from coord_adapter.format import GUARD_NAME, MODULE_NAME, offset_part
from coord_exporter.adapter import Adapter
from coord_exporter.checkpoint.modules import empty_model, named_as_modules, renamed_modules
from coord_exporter.checkpoint.read import StoredCheckpoint, TensorInfo
from coord_exporter.checkpoint.recipe import read_float, read_rows, torch_dtype
from coord_exporter.checkpoint.staging import ExportError
from coord_exporter.verify import comparing
from coord_exporter.vocabulary import Tables, find_tables

if TYPE_CHECKING:
    import torch

# Tolerated error of a tensor in addition to rounding: relative to the adapter's largest change of the tensor, and
# relative to each value, for another order of summation.
_OF_EFFECT, _OF_VALUE = 1e-3, 4e-6

_PREFIX = "base_model.model."
_PART = re.compile(r"\.(?=lora_|base_layer\.|token_adapter\.|modules_to_save\.|weight$|bias$)")
"""What follows the name of a module in a name of PEFT."""

_INNER = (".base_layer", ".token_adapter", ".original_module", ".modules_to_save.default")


def verify_tensors(base: StoredCheckpoint, adapter: Adapter, out: StoredCheckpoint) -> dict[str, Any]:
    """Compare each tensor of an export with PEFT's, and the tensors that no adapter changes with the base's.

    Returns:
        `compared`, the number of tensors that PEFT changes; `largest_error`, relative to the largest change of the same
        tensor; `vanished`, tensors whose change is lost by rounding to the checkpoint's dtype.

    Raises:
        ExportError: naming the first wrong tensor
    """
    import torch

    # Both are read under the names of transformers' modules; a new head has one that the base's map lacks.
    stored_head = find_tables(base).head
    with comparing():
        base = named_as_modules(base)
    tables = find_tables(base)
    out = replace(out, modules={stored_head: tables.head} | base.modules)

    if lost := _names_on_disk(base) - _names_on_disk(out):
        raise ExportError(f"verify: {min(lost)} is missing in the export; nothing was written")
    compared, vanished, largest = set(), [], 0.0
    untouched = set(out.tensors)
    with warnings.catch_warnings(), torch.inference_mode(), comparing():
        warnings.simplefilter("ignore")
        layers = _layers(base, adapter, empty_model(base))
        for name, expected in (item for merge_layer in layers.values() for item in merge_layer().items()):
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
        if not _is_copy(tables.source(base, name), out.tensors[name]):
            raise ExportError(
                f"verify: {name} differs from the base's, which PEFT does not change; nothing was written"
            )
    return {"compared": len(compared), "largest_error": largest, "vanished": vanished}


def _names_on_disk(checkpoint: StoredCheckpoint) -> set[str]:
    """Return the names of all tensors in a checkpoint's files, as the safetensors library reads them."""
    from safetensors import safe_open

    names: set[str] = set()
    for file in checkpoint.files:
        with safe_open(file.path, "pt") as stored:
            names.update(stored.keys())
    return names


def _is_copy(before: TensorInfo, after: TensorInfo) -> bool:
    """Return whether a tensor has the base's bytes or, in another dtype, its values rounded once."""
    import torch

    for lo, hi in after.blocks():
        if before.dtype == after.dtype:
            same = before.read(lo, hi) == after.read(lo, hi)
        else:
            rounded = read_rows(before, lo, hi).to(torch_dtype(after.dtype)).float()
            same = torch.equal(rounded, read_rows(after, lo, hi))
        if not same:
            return False
    return True


def verify_rows(base: StoredCheckpoint, adapter: Adapter, vanilla: Adapter) -> dict[str, Any]:
    """Load a converted adapter with plain PEFT, and compare its trained rows with base plus offsets.

    The base has its tensors under their names in transformers' model.

    Returns:
        `compared`, the number of tensors that PEFT changes; `largest_error`, relative to a tensor's largest change.

    Raises:
        ExportError: naming the first wrong tensor
    """
    import torch

    tables = find_tables(base)
    unchecked = dict.fromkeys([tables.embed] if tables.tied else [tables.embed, tables.head])
    rows, compared, largest = _offset_rows(adapter, tables.embed, tables.head), 0, 0.0
    with warnings.catch_warnings(), torch.inference_mode(), comparing():
        warnings.simplefilter("ignore")
        layers = _layers(base, vanilla, empty_model(base)).values()
        for name, loaded in (item for merge_layer in layers for item in merge_layer().items()):
            compared += 1
            if name not in unchecked:
                continue
            source = tables.source(base, name)
            before = read_float(source)
            expected = rows(name, before)
            effect = float((expected - before).abs().max())
            error = (loaded - expected).abs() - (expected.to(torch_dtype(source.dtype)).float() - expected).abs()
            if not float(error.max()) <= _OF_EFFECT * effect:
                raise ExportError(f"verify: plain PEFT loads other rows of {name}; nothing was written")
            largest = max(largest, float(error.max()) / effect if effect else 0.0)
            unchecked.pop(name)
    if unchecked:
        raise ExportError(f"verify: plain PEFT trains no row of {next(iter(unchecked))}; nothing was written")
    return {"compared": compared, "largest_error": largest}


def _layers(base: StoredCheckpoint, adapter: Adapter, model: Any) -> dict[str, Callable[[], dict[str, torch.Tensor]]]:
    """Return for each layer that the adapter changes a function that merges it with PEFT and adds offsets.

    Each function may be called once, and returns the layer's float32 tensors by name. Keys are the paths of layers.
    """
    from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper
    from safetensors.torch import load_file

    config: Any = PeftConfig.from_pretrained(adapter.folder)
    if adapter.offsets is not None:
        other = {name: ids for name, ids in (config.trainable_token_indices or {}).items() if name != GUARD_NAME}
        config.trainable_token_indices = other or None
        config.modules_to_save = [name for name in config.modules_to_save or () if name != MODULE_NAME] or None
    hollow = _hollow_out(model)
    tables = find_tables(base)
    tied = {tables.embed, tables.head} if tables.tied else set()
    # All that the file holds, whatever we have read of it. In float32: beside its factors PEFT stores an adapted table
    # in 16 bits, and would merge both in those.
    stored = load_file(adapter.file.path)
    state = {name: value.float() for name, value in stored.items() if offset_part(name) is None}
    state = _with_todays_names(model, state)
    config.inference_mode = True
    peft_model = get_peft_model(model, config, low_cpu_mem_usage=True)
    loaded = set_peft_model_state_dict(peft_model, state, low_cpu_mem_usage=True)
    if unread := loaded.unexpected_keys:
        raise ExportError(f"verify: PEFT does not load {unread[0]} of the adapter; nothing was written")
    inner = peft_model.base_model.model
    rows = _offset_rows(adapter, tables.embed, tables.head)
    layers: dict[str, Callable[[], dict[str, torch.Tensor]]] = {}

    def merged(path: str, module: Any) -> dict[str, torch.Tensor]:
        plain, tensors = _merge(base, path, module, tables, hollow), {}
        for name, value in list(plain.named_parameters()):
            if not hollow(value):
                tensors[f"{path}.{name}"] = rows(f"{path}.{name}", value.data.float())
                owner, _, leaf = name.rpartition(".")
                setattr(plain.get_submodule(owner), leaf, None)
        return tensors

    def carried(name: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: rows(name, value.float())}

    for path, module in list(inner.named_modules()):
        inside = any(path.startswith(f"{outer}.") for outer in layers)
        if isinstance(module, (BaseTunerLayer, AuxiliaryTrainingWrapper)) and not inside:
            layers[path] = partial(merged, path, module)
    wrapped = set(layers)
    for path, value in inner.named_parameters():
        if not hollow(value) and not any(path.startswith(f"{outer}.") for outer in wrapped):
            for name in tied if path in tied else {path}:
                if name.rpartition(".")[0] not in wrapped:
                    layers[name] = partial(carried, name, value.data)
    for name in (tables.embed, tables.head) if adapter.offsets is not None else ():
        if name.rpartition(".")[0] not in wrapped and name not in layers:
            layers[name] = partial(lambda name: carried(name, read_float(tables.source(base, name))), name)
    return layers


def _with_todays_names(model: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename the tensors of an adapter whose modules had other names in its transformers, which PEFT would not load."""
    modules = {name: _PART.split(name.removeprefix(_PREFIX), maxsplit=1)[0] for name in state}
    renamed = renamed_modules(model, modules.values())
    return {
        name.replace(modules[name], renamed.get(modules[name], modules[name]), 1): value
        for name, value in state.items()
    }


def _hollow_out(model: Any) -> Callable[[torch.Tensor], bool]:
    """Replace meta tensors by zeros that take no memory, since PEFT loads tensors to the device of the weights.

    Returns:
        A function that returns whether a tensor is such zeros.
    """
    import torch

    zero, zeros_of = torch.zeros(1), {}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, value in parameters.items():
        if value not in zeros_of:
            zeros_of[value] = torch.nn.Parameter(zero.expand(value.shape), requires_grad=False)
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, zeros_of[value])
    return lambda value: value.data_ptr() == zero.data_ptr()


def _merge(
    base: StoredCheckpoint, path: str, module: Any, tables: Tables, hollow: Callable[[torch.Tensor], bool]
) -> Any:
    """Load the base weights of a wrapper and merge it, as `merge_and_unload` does; return the wrapped module."""
    import torch

    for name, value in list(module.named_parameters()):
        full = f"{path}.{name}"
        for part in _INNER:
            full = full.replace(part, "")
        if hollow(value) and (full in base.tensors or full == tables.head):
            owner = module.get_submodule(name.rpartition(".")[0])
            weight = read_float(tables.source(base, full))
            if weight.shape != value.shape:
                weight = weight.mT.contiguous()
            setattr(owner, name.rpartition(".")[2], torch.nn.Parameter(weight, requires_grad=False))
    return _unwrapped(module)


def _unwrapped(module: Any) -> Any:
    """Merge a wrapper into what it wraps, the innermost first: trained tokens replace rows that LoRA adds to."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    kinds = (BaseTunerLayer, AuxiliaryTrainingWrapper)
    if isinstance(inner := getattr(module, "base_layer", None), kinds):
        module.base_layer = _unwrapped(inner)
    while isinstance(module, kinds):
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
    """Return the largest error in addition to rounding, PEFT's largest change, and whether the export has any change.

    Raises:
        ExportError: if the error exceeds the tolerance
    """
    if len(expected.shape) == 3 and expected.shape != after.shape:
        expected = expected.mT
    largest = effect = excess = 0.0
    changed = False
    dtype = torch_dtype(after.dtype)
    for lo, hi in after.blocks():
        rows = expected[lo:hi]
        exported, old = read_rows(after, lo, hi), read_rows(before, lo, hi)
        error = (exported - rows).abs() - (rows.to(dtype).float() - rows).abs()
        largest = max(largest, float(error.max()))
        effect = max(effect, float((rows - old).abs().max()))
        excess = max(excess, float((error - _OF_VALUE * rows.abs()).max()))
        changed = changed or not bool((exported == old).all())
    if not excess <= _OF_EFFECT * effect:
        raise ExportError(
            f"verify: {after.name} differs from PEFT's by {largest:.3g} in addition to rounding, and the adapter "
            f"changes it by {effect:.3g}; nothing was written. The export is wrong, or the adapter behaves "
            "differently when merged: please report it"
        )
    return largest, effect, changed
