"""Measures the memory of a training step by simulating it on meta tensors, which have shapes but no values.

A dispatch mode counts the bytes of every live tensor. The model's own modules run, with their adapters, gradient
checkpointing and number formats, except for two substitutes: attention, since sdpa and flash-attention never keep the
scores but in each layer the mask of padded rows, and head and loss, whose memory is measured on the real objective at
two small hidden widths.

Shapes: B samples, T tokens, P patches, N supervised rows, H hidden, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface
from transformers.vision_utils import (
    get_vision_attention_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from coord_adapter import without_input_casts
from coord_detect.families.family import Family
from coord_losses import CoordObjective, ObjectSlots, global_denominators
from coord_losses.hf.head import RowHead

_SIMULATED = "coord_simulation"


@dataclass(frozen=True)
class StepMemory:
    """Bytes used by one rank in a training step, and their peak.

    Activations are everything else that is alive at the peak, inputs included. Gradients may be incomplete then, so
    that the peak can be less than the sum.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of live storages on `device`, each from its first use until it is freed."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._device = device
        self._seen: dict[int, int] = {}

    def count(self, value: Any) -> None:
        """Count the storage of a tensor, once."""
        if not isinstance(value, Tensor) or value.device.type != self._device:
            return
        storage = value.untyped_storage()
        key = storage._cdata
        if key not in self._seen:
            self._seen[key] = storage.nbytes()
            self.now += self._seen[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._seen.pop(key)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count its results."""
        out = function(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            self.count(value)
        return out


@dataclass(frozen=True)
class LossMemory:
    """Bytes of head and loss, from the supervised rows on, besides the weight.

    `kept` are saved for the backward pass, whose peak is above them.
    """

    forward: int
    kept: int
    backward: int


_WIDTHS = 32, 64
"""Hidden widths at which head and loss are measured; each of their tensors has a size that is linear in the width."""


def measure_loss(
    objective: CoordObjective, head_VH: Tensor, labels_BT: Tensor, slots: ObjectSlots | None, offsets: int = 0
) -> LossMemory:
    """Run the fused objective on a head with few columns, and count its memory for all of them."""
    narrow, wide = (_loss_memory(objective, head_VH, width, labels_BT, slots, offsets) for width in _WIDTHS)
    further = (head_VH.shape[1] - _WIDTHS[0]) / (_WIDTHS[1] - _WIDTHS[0])
    return LossMemory(*(round(few + further * (many - few)) for few, many in zip(narrow, wide, strict=True)))


def _loss_memory(
    objective: CoordObjective, head_VH: Tensor, width: int, labels_BT: Tensor, slots: ObjectSlots | None, offsets: int
) -> tuple[int, int, int]:
    """Return the bytes of `LossMemory` at a hidden width."""
    hidden_BTH = torch.zeros(*labels_BT.shape, width, dtype=head_VH.dtype, requires_grad=True)
    weight_VH = torch.zeros(len(head_VH), width, dtype=head_VH.dtype, requires_grad=head_VH.requires_grad)
    added: dict[str, Any] = {}
    if offsets and objective.vocab is not None:
        coordinates = objective.vocab.ids
        others = (i for i in range(len(head_VH)) if i not in coordinates)  # markers are somewhere among them
        ids = [*coordinates, *islice(others, max(offsets - len(coordinates), 0))][:offsets]
        added = {"offsets_KH": torch.zeros(len(ids), width, requires_grad=True), "offset_ids_K": ids}
    denominators = global_denominators([(labels_BT, slots)], objective.vocab)
    rows = RowHead(objective, labels_BT, slots, denominators=denominators)
    with LiveBytes("cpu") as live:
        for given in (hidden_BTH, weight_VH, added.get("offsets_KH")):
            live.count(given)
        before = live.now
        total = rows.total(rows.fuse(rows.take(hidden_BTH), weight_VH, **added))
        forward, kept = live.peak - before, live.now - before
        live.peak = live.now
        total.backward()
    return forward, kept, live.peak - before - kept


class _Loss(torch.autograd.Function):
    """Substitute for head and loss that allocates the same memory."""

    @staticmethod
    def forward(ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, loss: LossMemory) -> Tensor:
        temporary = torch.empty(loss.forward, dtype=torch.uint8, device="meta")
        del temporary
        ctx.save_for_backward(weight_VH, torch.empty(loss.kept, dtype=torch.uint8, device="meta"))
        ctx.backward_bytes, ctx.hidden = loss.backward, (hidden_NH.shape, hidden_NH.dtype)
        return hidden_NH.new_empty(())

    @staticmethod
    def backward(ctx: Any, _: Any) -> tuple[Tensor | None, ...]:
        weight_VH, _ = ctx.saved_tensors
        temporary = torch.empty(ctx.backward_bytes, dtype=torch.uint8, device="meta")
        del temporary  # it counts the gradients, which follow
        weight_gradient = torch.empty_like(weight_VH) if ctx.needs_input_grad[1] else None
        shape, dtype = ctx.hidden
        return weight_VH.new_empty(shape, dtype=dtype), weight_gradient, None


class _Attention(torch.autograd.Function):
    """Substitute for sdpa and flash-attention that saves inputs, mask, output and one number per row."""

    @staticmethod
    def forward(ctx: Any, q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, masked: bool) -> Tensor:
        out_BATD = torch.empty_like(q_BATD)
        # sdpa turns a mask of transformers into numbers of its own in each layer
        mask_B1TT = q_BATD.new_empty(len(q_BATD), 1, q_BATD.shape[2], k_BATD.shape[2]) if masked else None
        ctx.save_for_backward(q_BATD, k_BATD, v_BATD, out_BATD, q_BATD.new_empty(q_BATD.shape[:-1]), mask_B1TT)
        return out_BATD

    @staticmethod
    def backward(ctx: Any, _: Any) -> tuple[Tensor | None, ...]:
        return (*(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3]), None)


def _simulate_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, *, padded: bool = False, **_: Any
) -> Any:
    groups = query.shape[1] // key.shape[1]
    if groups > 1:  # sdpa on the CPU repeats keys and values for grouped heads
        key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
    masked = padded and module.is_causal  # a vision tower takes image by image
    return _Attention.apply(query, key, value, masked).transpose(1, 2).contiguous(), None


_PRODUCTS = (
    *((functional, name) for name in ("linear", "conv2d", "conv3d")),
    *((torch, name) for name in ("matmul", "bmm")),
    (Tensor, "__matmul__"),
)


@contextmanager
def _autocast(dtype: torch.dtype) -> Iterator[None]:
    """Cast the operands of products to `dtype`, as autocast does, which meta tensors do not know.

    The functions are replaced: a mode would not act where checkpointed layers are computed again.
    """

    def casting(own: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def product(*operands: Any, **settings: Any) -> Tensor:
            half = [x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for x in operands]
            return own(*half, **settings)

        return product

    before = [vars(owner).get(name) for owner, name in _PRODUCTS]
    for owner, name in _PRODUCTS:
        setattr(owner, name, casting(getattr(owner, name)))
    try:
        yield
    finally:
        for (owner, name), own in zip(_PRODUCTS, before, strict=True):
            if own is None:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, own)


def simulate_step(
    model: Any, family: Family, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor], rows: int, loss: LossMemory
) -> StepMemory:
    """Simulate a step on meta tensors; the optimizer's state exists from its beginning, as in a second step.

    `batch` has `input_ids` [B, T], `attention_mask` of padded rows and what the model takes of images, such
    as `pixel_values` [P, D] and `image_grid_thw` [images, 3]; values are used of mask and grid alone. `rows`
    is N.
    """
    padded = not batch.get("attention_mask", torch.ones(1)).all()
    AttentionInterface.register(_SIMULATED, partial(_simulate_attention, padded=padded))
    core: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    vision, text = core.get_submodule(family.vision_tower), core.get_submodule(family.language_model)
    head: Any = core.get_submodule(family.head)
    for part in (core, vision, text):
        part.config._attn_implementation = _SIMULATED
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    half = head.weight.dtype != torch.float32
    casts = _autocast(head.weight.dtype) if half else nullcontext()
    with LiveBytes("meta") as live, casts, without_input_casts(model, half):
        for tensor in (*model.parameters(), *model.buffers()):
            live.count(tensor)
        weights = live.now
        inputs = _meta_inputs(batch, vision)
        input_bytes = live.now - weights
        _update(optimizer, trained)
        live.peak = live.now
        hidden_BTH = _hidden(core, text, inputs)
        _Loss.apply(hidden_BTH.flatten(0, 1)[:rows], head.weight, loss).backward()
        del hidden_BTH
        _update(optimizer, trained)
        peak = live.peak
    gradients = sum(p.numel() * p.itemsize for p in trained)
    states = live.now - weights - input_bytes
    return StepMemory(weights, gradients, states, max(peak - weights - states - gradients, 0), peak)


def under_zero(step: StepMemory, zero: Mapping[str, Any], ranks: int, trained: int, half: bool) -> StepMemory:
    """Return the bytes of one rank under DeepSpeed, as its ZeRO stages (`zero_optimization`) state them.

    DeepSpeed casts all weights to the number format of the model, keeps a float32 copy of the trained ones
    beside float32 moments if that is `half` precision, and collects gradients in a bucket. Stage 1 shards
    copy and moments over the ranks, stage 2 the gradients, stage 3 the weights, of which a limited number is
    gathered at a time. [Rajbhandari et al. 2020]

    Example:
        >>> step = StepMemory(weights=2_000, gradients=2_000, optimizer=4_000, activations=100, peak=8_100)
        >>> shared = under_zero(step, {"stage": 2}, ranks=4, trained=1_000, half=True)
        >>> shared.weights, shared.gradients, shared.optimizer, shared.peak
        (2000, 500, 3000, 8000)
    """
    stage, size = zero.get("stage", 0), 2 if half else 4
    weights = step.weights - step.gradients + trained * size
    moments = step.optimizer * 4 * trained // max(step.gradients, 1)
    optimizer = (moments + 4 * trained) // (ranks if stage >= 1 else 1)
    bucket = zero.get("reduce_bucket_size", 0)
    gradients = trained * size // (ranks if stage >= 2 else 1)
    gradients += int(bucket) * size if stage and isinstance(bucket, int | float) else 0
    if stage == 3:
        share = weights // ranks
        weights = share + min(weights - share, int(zero.get("stage3_max_live_parameters", 1e9)) * size)
    if (zero.get("offload_optimizer") or {}).get("device") == "cpu":
        optimizer = 0
    # An update makes a float32 gradient and two temporaries of AdamW; stage 2 has freed the gradients by then.
    updated = weights + optimizer + 12 * trained // (ranks if stage else 1) + (gradients if stage == 3 else 0)
    peak = max(weights + gradients + optimizer + step.activations, updated)
    return StepMemory(weights, gradients, optimizer, step.activations, peak)


def _update(optimizer: torch.optim.Optimizer, trained: list[nn.Parameter]) -> None:
    """Update parameters, of which those of the head's offsets have no gradients in a simulation."""
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def _meta_inputs(batch: dict[str, Tensor], vision: Any) -> dict[str, Any]:
    """Return ids and arguments of `get_image_features`, with what a tower would compute from values of the grid."""
    images: dict[str, Any] = {"pixel_values": batch["pixel_values"].to("meta")}
    if "image_sizes" in batch:
        images["image_sizes"] = batch["image_sizes"]
    if "image_grid_thw" in batch:
        grid, merge = batch["image_grid_thw"], vision.config.spatial_merge_size
        lengths, longest = get_vision_attention_seqlens(grid, vision.config)
        computed = {"position_ids": get_vision_position_ids(grid, merge)}
        images |= {"image_grid_thw": grid, "cu_seqlens": lengths, "max_seqlen": longest}
        if hasattr(vision, "num_grid_per_side"):  # it learns an embedding of positions
            computed["interp_indices"], computed["interp_weights"] = get_vision_interpolation_indices_and_weights(
                grid,
                num_grid_per_side=vision.num_grid_per_side,
                mode=vision.interpolation_mode,
                align_corners=vision.interpolation_align_corners,
                spatial_merge_size=merge,
            )
        if hasattr(vision, "window_size"):  # most of its layers attend within windows
            computed["window_index"], images["cu_window_seqlens"] = get_vision_window_index(
                grid, spatial_merge_size=merge, window_size=vision.window_size, patch_size=vision.patch_size
            )
        images |= {name: value.to("meta") for name, value in computed.items()}
    return {"ids": batch["input_ids"].to("meta"), "images": images}


def _hidden(core: Any, text: Any, inputs: dict[str, Any]) -> Any:
    ids_BT = inputs["ids"]
    tower = core.get_image_features(**inputs["images"])
    features = tower.pooler_output
    images = features.flatten(0, -2) if isinstance(features, Tensor) else torch.cat([*features])
    for deep in getattr(tower, "deepstack_features", None) or ():
        # Added, so that what they keep for the backward pass lives until then
        images = images + (deep if isinstance(deep, Tensor) else torch.cat([*deep]))
    embeds_BTH = text.get_input_embeddings()(ids_BT)
    places = torch.empty(*ids_BT.shape, 1, dtype=torch.bool, device="meta").expand_as(embeds_BTH)
    embeds_BTH = embeds_BTH.masked_scatter(places, images.to(embeds_BTH.dtype))
    rotary = getattr(text.config, "rope_parameters", None) or {}
    # Qwen's positions in an image are text, time, row and column.
    rows = (4,) if "mrope_section" in rotary else ()
    positions = torch.empty(*rows, *ids_BT.shape, dtype=torch.long, device="meta")
    return text(inputs_embeds=embeds_BTH, position_ids=positions, use_cache=False).last_hidden_state
