"""From an adapter's factors to steps on weights, each checked against the shape of the weight it changes."""

from __future__ import annotations

from .adapter import Adapter, Factors
from .checkpoint import Checkpoint, TensorInfo
from .errors import InputError
from .lora import BiasStep, LoraStep
from .offsets import TokenRowsStep
from .recipe import Step
from .tables import HEAD, Tables

_OTHER_BASE = "was the adapter trained on another base?"


def module_steps(base: Checkpoint, adapter: Adapter, tables: Tables) -> dict[str, list[Step]]:
    """The steps of each tensor that LoRA, DoRA or trainable tokens change, by tensor name.

    Raises:
        InputError: naming the module, for factors that do not fit or cannot be merged exactly.
    """
    steps: dict[str, list[Step]] = {}
    transposed = _stored_transposed(base, adapter)
    for module, factors in adapter.factors.items():
        name = f"{module}.weight"
        weight = base.tensors.get(name) or base.tensors[tables.embed]
        if factors.token_rows is not None:
            step: Step = _token_rows_step(adapter, module, factors, weight)
            names = {name, HEAD} if name == tables.embed and _head_follows(adapter, tables) else {name}
        else:
            step, names = (
                _lora_step(adapter, module, factors, weight, tables=tables, transposed=transposed),
                {name},
            )
        for target in names:
            steps[target] = [step]
        if adapter.config.lora_bias or factors.bias is not None:
            steps[f"{module}.bias"] = [_bias_step(base, adapter, module, factors.bias)]
    return steps


def _stored_transposed(base: Checkpoint, adapter: Adapter) -> bool:
    """Whether weights are stored [in, out]; PEFT goes by the layer's class, the shapes tell the same."""
    if not adapter.config.fan_in_fan_out:
        return False
    for module, factors in adapter.factors.items():
        weight = base.tensors.get(f"{module}.weight")
        if (
            weight
            and factors.a
            and factors.b
            and len(weight.shape) == 2
            and weight.shape[0] != weight.shape[1]
        ):
            return weight.shape == (factors.a.shape[-1], factors.b.shape[0])
    raise InputError(
        f"{adapter.config.path}: fan_in_fan_out is true and every adapted layer is square: cannot tell how "
        "they are stored; set it to false if the base's layers are nn.Linear"
    )


def _lora_step(
    adapter: Adapter, module: str, factors: Factors, weight: TensorInfo, *, tables: Tables, transposed: bool
) -> LoraStep:
    path, config = adapter.file.path, adapter.config
    embedding = factors.embedding_a is not None or factors.embedding_b is not None
    a, b = (factors.embedding_a, factors.embedding_b) if embedding else (factors.a, factors.b)
    if a is None or b is None:
        raise InputError(f"{path}: {module}: a LoRA factor is missing; save the adapter again")
    if not len(a.shape) == len(b.shape) == len(weight.shape) == 2:
        raise InputError(f"{path}: {module}: LoRA of a layer that is not a matrix cannot be merged exactly")
    if factors.magnitude is not None and (embedding or f"{module}.weight" in (tables.embed, HEAD)):
        raise InputError(
            f"{path}: {module}: DoRA on the embedding or the head cannot be merged exactly; use LoRA there"
        )
    if config.use_dora != (factors.magnitude is not None):
        found = "none" if config.use_dora else "one"
        raise InputError(
            f"{path}: {module}: use_dora is {config.use_dora} and of magnitude vectors there is {found}"
        )
    turned = embedding or transposed
    rank, (rows, columns) = config.rank(module), weight.shape[::-1] if turned else weight.shape
    if a.shape != (rank, columns) or b.shape != (rows, rank):
        raise InputError(
            f"{path}: {module}: factors {list(b.shape)} x {list(a.shape)} of rank {rank} do not fit the "
            f"base's weight {list(weight.shape)}; {_OTHER_BASE}"
        )
    if factors.magnitude is not None and factors.magnitude.shape not in ((rows,), (rows, 1), (1, rows)):
        raise InputError(
            f"{path}: {module}: magnitude {list(factors.magnitude.shape)}, expected {rows} values"
        )
    return LoraStep(a, b, config.scale(module), factors.magnitude, turned)


def _bias_step(base: Checkpoint, adapter: Adapter, module: str, bias: TensorInfo | None) -> BiasStep:
    stored = base.tensors.get(f"{module}.bias")
    if bias is None or not adapter.config.lora_bias:
        raise InputError(
            f"{adapter.file.path}: {module}: lora_bias in the configuration and lora_B.bias disagree"
        )
    if stored is None:
        raise InputError(
            f"{adapter.file.path}: {module}: lora_bias cannot be merged, the base's layer has no bias"
        )
    if stored.shape != bias.shape:
        raise InputError(
            f"{adapter.file.path}: {module}: bias {list(bias.shape)} on {list(stored.shape)}; {_OTHER_BASE}"
        )
    return BiasStep(bias, adapter.config.scale(module))


def _token_rows_step(adapter: Adapter, module: str, factors: Factors, weight: TensorInfo) -> TokenRowsStep:
    path, table = adapter.file.path, factors.token_rows
    if any((factors.a, factors.b, factors.embedding_a, factors.embedding_b)):
        raise InputError(
            f"{path}: {module}: LoRA and trainable_token_indices on one module cannot be merged exactly"
        )
    listed = [ids for name, ids in adapter.config.token_indices.items() if module.endswith(name)]
    if len(listed) != 1:
        raise InputError(f"{adapter.config.path}: trainable_token_indices: no single entry for {module}")
    check_ids(f"{adapter.config.path}: trainable_token_indices", listed[0], weight.rows)
    if table.shape != (len(listed[0]), *weight.shape[1:]):
        raise InputError(
            f"{path}: {table.name} is {list(table.shape)}, expected {len(listed[0])} rows of the base's "
            f"{list(weight.shape)}; {_OTHER_BASE}"
        )
    return TokenRowsStep(listed[0], table)


def _head_follows(adapter: Adapter, tables: Tables) -> bool:
    """PEFT lets a tied head use the embedding's trained rows, unless it has its own."""
    head = adapter.factors.get(HEAD.removesuffix(".weight"))
    return tables.tied and (head is None or head.token_rows is None)


def check_ids(where: str, ids: tuple[int, ...], rows: int) -> None:
    """Refuse ids outside 0..rows-1 and repeated ones.

    Raises:
        InputError: naming the first.
    """
    for token_id in ids:
        if not 0 <= token_id < rows:
            raise InputError(
                f"{where}: id {token_id} is outside the vocabulary, the base has rows 0..{rows - 1}; merge "
                "into the base it was trained on (expand-vocab makes it)"
            )
    if len(set(ids)) != len(ids):
        repeated = next(token_id for token_id in ids if ids.count(token_id) > 1)
        raise InputError(f"{where}: id {repeated} is there twice; save the adapter again")
