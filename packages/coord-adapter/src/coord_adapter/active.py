"""What a fused objective needs to apply the offsets itself."""

from dataclasses import dataclass

from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from coord_adapter.hooks import active_adapter, find_owner
from coord_adapter.tables import MODULE_NAME


@dataclass(frozen=True)
class ActiveOffsets:
    """The head and its offsets.

    The logits are `hidden @ head_weight.T`, plus `hidden @ offsets.T` on the columns `ids`.

    Attributes:
        ids: int64 token ids [K]; row i of the offsets belongs to `ids[i]`.
        offsets: [K, H], the head's offsets (in tied mode the one table), in the tables' own dtype, attached
            to the graph.
        head_weight: [V, H], the frozen base head.
    """

    ids: Tensor
    offsets: Tensor
    head_weight: Tensor


def active_offsets(model: nn.Module) -> ActiveOffsets | None:
    """The offsets that the model's head would add right now; None without any, or while they are disabled.

    Use it together with `bypass_head_hook`, inside the function that stands in for `lm_head.forward` during
    one call: there ZeRO-3 has gathered the head's weight. The table is a copy that lives on after ZeRO-3 has
    partitioned the parameter again; gradients flow back to it.

    Args:
        model: The model in any wrapping (PEFT, DDP, DeepSpeed, compiled).

    Raises:
        ValueError: The head itself carries LoRA, so its weight alone is not the head.
    """
    owner = find_owner(model)
    adapter = None if owner is None else active_adapter(owner)
    if adapter is None:
        return None
    head = owner.get_output_embeddings()
    if isinstance(head, BaseTunerLayer):
        raise ValueError(
            f"the output head is wrapped by {type(head).__name__}: a fused objective sees only its base "
            "weight. Leave lm_head out of target_modules."
        )
    return ActiveOffsets(adapter.token_ids, adapter(None, None, "head_table"), head.weight)


def offset_parameters(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Trainable offset tables by role, "embed" and "head" (the latter empty in tied mode)."""
    found: dict[str, list[nn.Parameter]] = {"embed": [], "head": []}
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        if MODULE_NAME in parts and parameter.requires_grad:
            found["embed" if parts[-1] == "embed_offset" else "head"].append(parameter)
    return found
