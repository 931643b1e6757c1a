"""Write an adapter with offsets as a vanilla PEFT adapter that loads with none of this package."""

import copy
import tempfile
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from torch import Tensor, nn

from coord_adapter.bake import head_table, moved_rows
from coord_adapter.guard import GUARD_NAME
from coord_adapter.hooks import active_adapter, find_owner
from coord_adapter.saved import WEIGHTS_FILE
from coord_adapter.tables import MODULE_NAME, CoordOffsetAdapter

ROWS_KEY = "base_model.model.{}.token_adapter.trainable_tokens_delta"


@torch.no_grad()
def save_as_trainable_tokens(model: PeftModel, path: str | Path) -> None:
    """Save the active adapter with its offsets as PEFT's `trainable_token_indices`.

    PEFT stores the rows themselves, not their difference to the base, in the base's dtype. The result gives
    equal logits in float32 (in bfloat16 up to the rounding of the rows), merged or not, and loads with
    `PeftModel.from_pretrained` alone.

    Args:
        model: A PEFT model whose active adapter has offsets.
        path: A folder that does not exist yet.

    Raises:
        FileExistsError: There is something at `path` already.
        ValueError: No active offsets; embedding or head carry LoRA; a base that ties embedding and head with
            two tables, which PEFT can hold apart but merges into one weight; weights partitioned by ZeRO-3.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path}: exists already; choose a new folder.")
    owner = find_owner(model)
    wrapper = None if owner is None or not isinstance(model, PeftModel) else active_adapter(owner)
    if wrapper is None:
        raise ValueError("the model has no active PEFT adapter with coordinate offsets.")
    name = wrapper.active_adapters[0]
    rows = _rows_by_layer(owner, wrapper.modules_to_save[name])
    tensors = {
        key: value.contiguous()
        for key, value in get_peft_model_state_dict(
            model, adapter_name=name, save_embedding_layers=False
        ).items()
        if f".{MODULE_NAME}." not in key
    }
    tensors |= {ROWS_KEY.format(layer): rows_KH for layer, rows_KH in rows.items()}
    ids = wrapper.token_ids.tolist()
    config = copy.deepcopy(model.peft_config[name])
    config.inference_mode = True
    config.modules_to_save = [module for module in config.modules_to_save if module != MODULE_NAME] or None
    others = {
        key: value for key, value in (config.trainable_token_indices or {}).items() if key != GUARD_NAME
    }
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
    """Finished rows [K, H] by the layer's name; a tied head follows the embedding and is not named."""
    embedding, head = owner.get_input_embeddings(), owner.get_output_embeddings()
    for layer in (embedding, head):
        if isinstance(layer, BaseTunerLayer):
            raise ValueError(
                "embedding or head carry LoRA, which PEFT cannot combine with trainable_token_indices."
            )
        if layer.weight.shape[0] == 0:
            raise ValueError(
                "the weights are partitioned by ZeRO-3: load the saved adapter on a whole base model first."
            )
    names = {module: name for name, module in owner.named_modules()}
    rows = {names[embedding]: moved_rows(embedding.weight, adapter.token_ids, adapter.embed_offset)}
    if embedding.weight is head.weight:
        if not adapter.tied:
            raise ValueError(
                "the base model ties embedding and head but the adapter has two tables (tie_head: false): "
                "PEFT merges both into the one weight. Use bake_offsets, which unties the base."
            )
    else:
        rows[names[head]] = moved_rows(head.weight, adapter.token_ids, head_table(adapter))
    return rows
