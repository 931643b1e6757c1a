"""Loads an adapter folder onto a base model, and writes adapters that can be loaded without this package."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor, nn

from coord_adapter.format import (
    GUARD_NAME,
    MODULE_NAME,
    WEIGHTS_FILE,
    problem_with_fingerprint,
    problem_with_ids,
    problem_with_shapes,
    read_stored,
    weights_file,
)
from coord_adapter.hooks import find_owner, output_head
from coord_adapter.install import install_coord_offset_adapter, vocabulary_rows
from coord_adapter.peft import TOKEN_ROWS_KEY, active_copy, has_lora, is_wrapped
from coord_adapter.tables import CoordOffsetAdapter, moved_rows
from coord_codec import InputError


def load_adapter(
    base_model: nn.Module,
    path: str | Path,
    *,
    fingerprint: str | None = None,
    adapter_name: str = "default",
    is_trainable: bool = False,
    **kwargs: Any,
) -> PeftModel:
    """Load an adapter with coordinate offsets onto a base model, with or without installed tables.

    Ids, sizes and tie mode come from the file; tables are installed if the base model has none.

    Args:
        base_model: the base model; if tables are already installed, their fingerprint is compared
        path: a local adapter folder, or the `adapter_model.safetensors` in it
        fingerprint: fingerprint of the tokenizer in use, compared with that of the file
        adapter_name: name of the adapter in the PEFT model
        is_trainable: whether the adapter will be trained further
        **kwargs: passed to `PeftModel.from_pretrained`

    Returns:
        The PEFT model with the adapter active.

    Raises:
        FileNotFoundError: if there is no adapter
        ValueError: if the file has another name, contains no offsets, or offsets of another size or vocabulary, or if
            PEFT already wraps the base model or its embedding is on the meta device
    """
    if isinstance(base_model, PeftModel):
        raise ValueError("base_model is already wrapped by PEFT: call its load_adapter(path, adapter_name) instead.")
    if base_model.get_input_embeddings().weight.is_meta:
        raise ValueError(
            "base_model's embedding is on the meta device, without values: load the base with from_pretrained, and "
            "leave the embedding out of offloading."
        )
    file = weights_file(path)
    if file.name != WEIGHTS_FILE:  # PEFT loads the file of this name in the folder
        raise InputError(f"{file}: expected an adapter folder with {WEIGHTS_FILE}, found another file; rename it")
    saved = read_stored(file)
    installed = next((module for module in base_model.modules() if isinstance(module, CoordOffsetAdapter)), None)
    problem = problem_with_fingerprint(saved.fingerprint, fingerprint)
    if installed is not None:
        problem = problem or problem_with_fingerprint(saved.fingerprint, installed.fingerprint_text)
    else:
        hidden_size = base_model.get_input_embeddings().embedding_dim
        problem = (
            problem
            or problem_with_shapes(len(saved.ids), saved.embed, saved.head, hidden_size)
            or problem_with_ids(saved.ids, vocabulary_rows(base_model))
        )
    if problem:
        raise InputError(f"{file}: {problem}")
    if installed is None:
        installed = install_coord_offset_adapter(
            base_model, saved.ids, tie_head=saved.head is None, fingerprint=fingerprint or saved.fingerprint
        )
    # PEFT expects every key of the module in the file; files from other programs may lack the descriptive parts.
    installed._non_persistent_buffers_set.update(saved.lacking)
    model = PeftModel.from_pretrained(
        base_model, str(file.parent), adapter_name=adapter_name, is_trainable=is_trainable, **kwargs
    )
    for module in model.modules():
        if isinstance(module, CoordOffsetAdapter):
            module._non_persistent_buffers_set.difference_update(saved.lacking)
    return model


@torch.no_grad()
def save_as_trainable_tokens(model: PeftModel, path: str | Path) -> None:
    """Save the active adapter with its offsets as PEFT's `trainable_token_indices`.

    PEFT stores the rows themselves, not their difference to the base, in the base's dtype. The logits are equal in
    float32 (in bfloat16 up to the rounding of the rows), merged or not, and the adapter can be loaded with
    `PeftModel.from_pretrained`.

    Args:
        model: a PEFT model whose active adapter has offsets
        path: a folder that does not exist yet

    Raises:
        FileExistsError: if `path` already exists
        ValueError: if no offsets are active; if embedding or head carry LoRA; if there are two tables but the base
            ties embedding and head, which PEFT merges into one weight; if weights are partitioned by ZeRO-3
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path}: already exists; choose a new folder.")
    owner = find_owner(model)
    wrapper = None if owner is None else owner._modules[MODULE_NAME]
    active = active_copy(wrapper) if wrapper is not None and is_wrapped(wrapper) else None
    if active is None:
        raise ValueError("the model has no active PEFT adapter with coordinate offsets.")
    name, adapter = active
    rows = _rows_by_layer(owner, adapter)
    tensors = {
        key: value.contiguous()
        for key, value in get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False).items()
        if f".{MODULE_NAME}." not in key
    }
    tensors |= {TOKEN_ROWS_KEY.format(layer): rows_KH for layer, rows_KH in rows.items()}
    ids = adapter.token_ids.tolist()
    config = copy.deepcopy(model.peft_config[name])
    config.inference_mode = True
    config.modules_to_save = [module for module in config.modules_to_save if module != MODULE_NAME] or None
    others = {key: value for key, value in (config.trainable_token_indices or {}).items() if key != GUARD_NAME}
    config.trainable_token_indices = others | {layer.rpartition(".")[2]: ids for layer in rows}
    auto_mapping = {"base_model_class": type(owner).__name__, "parent_library": type(owner).__module__}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as scratch:
        folder = Path(scratch) / "adapter"
        folder.mkdir()
        save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        config.save_pretrained(str(folder), auto_mapping_dict=None if config.task_type else auto_mapping)
        folder.rename(path)


def _rows_by_layer(owner: nn.Module, adapter: CoordOffsetAdapter) -> dict[str, Tensor]:
    """Return the rows with offsets [K, H] by layer name, without the head if it is tied to the embedding."""
    embedding, head = owner.get_input_embeddings(), output_head(owner)
    for layer in (embedding, head):
        if has_lora(layer):
            raise ValueError("embedding or head carry LoRA, which PEFT cannot combine with trainable_token_indices.")
        if layer.weight.shape[0] == 0:
            raise ValueError(
                "the weights are partitioned by ZeRO-3: load the saved adapter on an unpartitioned base model first."
            )
    names = {module: name for name, module in owner.named_modules()}
    rows = {names[embedding]: moved_rows(embedding.weight[adapter.token_ids], adapter.embed_offset)}
    if embedding.weight is head.weight:
        if not adapter.tied:
            raise ValueError(
                "the base model ties embedding and head but the adapter has two tables (tie_head: false): "
                "PEFT merges both into the one weight. Use bake_offsets, which unties the base."
            )
    else:
        rows[names[head]] = moved_rows(head.weight[adapter.token_ids], adapter.head_table)
    return rows
