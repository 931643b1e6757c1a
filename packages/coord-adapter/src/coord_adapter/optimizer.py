"""The optimizer registry: functions that rearrange the parameter groups made for another optimizer.

Each registered name is a function of (model, groups, config). Groups are the dictionaries that torch optimizers take:
"params", "lr", "weight_decay" and any other keys of the optimizer in use.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from coord_adapter.config import CoordOffsetConfig
from coord_adapter.format import MODULE_NAME
from coord_adapter.peft import deepspeed_keeps_master
from coord_codec.registry import Registry

Group = dict[str, Any]
GroupBuilder = Callable[[nn.Module, Sequence[Group], CoordOffsetConfig], Sequence[Group]]

_BUILDERS: Registry[GroupBuilder] = Registry("optimizer")


def offset_parameters(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the trainable offset tables by role, "embed" and "head" (the latter empty in tied mode)."""
    tables: dict[str, list[nn.Parameter]] = {"embed": [], "head": []}
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        if MODULE_NAME in parts and parameter.requires_grad:
            tables["embed" if parts[-1] == "embed_offset" else "head"].append(parameter)
    return tables


def register_param_groups(name: str) -> Callable[[GroupBuilder], GroupBuilder]:
    """Return a decorator that adds an optimizer name to the registry.

    Raises:
        ValueError: if the name is already registered
    """

    def register(builder: GroupBuilder) -> GroupBuilder:
        return _BUILDERS.add(name, builder)

    return register


def param_group_names() -> list[str]:
    """Return the registered optimizer names.

    Example:
        >>> {"multimodal", "multimodal_coord_offset"} <= set(param_group_names())
        True
    """
    return sorted(_BUILDERS)


def build_param_groups(
    name: str, model: nn.Module, groups: Sequence[Group], config: CoordOffsetConfig
) -> Sequence[Group]:
    """Rearrange parameter groups.

    Args:
        name: a registered optimizer name: "multimodal" returns the groups unchanged, "multimodal_coord_offset" moves
            the offset tables into separate groups
        model: the model whose trainable parameters are in the groups
        groups: groups made for another optimizer, for example swift's multimodal one (vision, aligner, LLM)
        config: learning rates and weight decay of the offsets

    Returns:
        The groups, with each trainable parameter in exactly one of them; "multimodal_coord_offset" drops empty groups.

    Raises:
        ValueError: if the name is unknown, a group is no dictionary with "params", there are no offsets to move, or a
            trainable parameter is in no group or in several
    """
    if name not in _BUILDERS:
        raise ValueError(f"optimizer {name!r} is not registered, expected one of {param_group_names()}.")
    built = _listed(_BUILDERS[name](model, _listed(groups), config))
    _check_exactly_one_group(model, built)
    return built


def _listed(groups: Sequence[Group]) -> Sequence[Group]:
    """Return the groups with lists of parameters: counting would exhaust an iterator, which torch accepts as well."""
    groups = groups if isinstance(groups, Sequence) else list(groups)
    for group in groups:
        if not isinstance(group, Mapping) or "params" not in group:
            raise ValueError(f'groups must be dictionaries with "params", found {type(group).__name__}.')
    if all(isinstance(group["params"], list) for group in groups):
        return groups
    params = [group["params"] for group in groups]
    lists = [[x] if isinstance(x, torch.Tensor) else list(x) for x in params]
    return [{**group, "params": x} for group, x in zip(groups, lists, strict=True)]


@register_param_groups("multimodal")
def _unchanged(model: nn.Module, groups: Sequence[Group], config: CoordOffsetConfig) -> Sequence[Group]:
    return groups


@register_param_groups("multimodal_coord_offset")
def _separate_offsets(model: nn.Module, groups: Sequence[Group], config: CoordOffsetConfig) -> list[Group]:
    tables = offset_parameters(model)
    if not tables["embed"]:
        raise ValueError(
            f"multimodal_coord_offset found no trainable parameter of {MODULE_NAME}: enable coord_offset "
            "and list the module in modules_to_save, or use the optimizer 'multimodal'."
        )
    if not tables["head"] and config.head_lr is not None:
        warnings.warn(
            f"head_lr={config.head_lr} has no effect: embedding and head share one table, which learns at embed_lr.",
            stacklevel=3,
        )
    _warn_without_master([table for role in tables.values() for table in role], config)
    moved = {id(table) for role in tables.values() for table in role}
    kept = [{**group, "params": [p for p in group["params"] if id(p) not in moved]} for group in groups]
    rates = {"embed": config.embed_lr, "head": config.head_lr}
    separate = [
        _group_like(source, [table for table in role if _contains(source, table)], rates[name], config.weight_decay)
        for name, role in tables.items()
        for source in groups
    ]
    return [group for group in (*kept, *separate) if group["params"]]


def _warn_without_master(tables: list[nn.Parameter], config: CoordOffsetConfig) -> None:
    narrow = {table.dtype for table in tables if table.dtype in (torch.bfloat16, torch.float16)}
    if narrow and config.dtype in ("auto", "float32") and not deepspeed_keeps_master():
        warnings.warn(
            f"the offset tables are {narrow.pop()} and nothing keeps a float32 master: small updates are lost. "
            "Something cast the model after install_coord_offset_adapter (model.to(dtype) does); install afterwards.",
            stacklevel=4,
        )


def _group_like(source: Group, params: list[nn.Parameter], lr: float | None, weight_decay: float) -> Group:
    rate = {} if lr is None else {"lr": lr}
    return {**source, "params": params, **rate, "weight_decay": weight_decay}


def _contains(group: Group, parameter: nn.Parameter) -> bool:
    return any(member is parameter for member in group["params"])


def _check_exactly_one_group(model: nn.Module, groups: Sequence[Group]) -> None:
    counts = Counter(id(parameter) for group in groups for parameter in group["params"])
    wrong = {
        name: counts[id(parameter)]
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and counts[id(parameter)] != 1
    }
    if wrong:
        shown = ", ".join(f"{name} (in {count})" for name, count in list(wrong.items())[:5])
        raise ValueError(
            f"{len(wrong)} trainable parameter(s) are not in exactly one optimizer group: {shown}. Freeze "
            "them or give them a group."
        )
