"""The module with the trainable offset tables [K, H]: adds, stores and restores them.

Shape suffixes: B batch, T positions, H hidden size, V vocabulary, K coordinate ids (offset rows).
"""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import embedding, linear

from coord_adapter.format import (
    FORMAT_VERSION,
    TABLES,
    decode_fingerprint,
    encode_fingerprint,
    problem_with_fingerprint,
    problem_with_ids,
    problem_with_shapes,
    problem_with_version,
)


class CoordOffsetAdapter(nn.Module):
    """Offsets added to the embeddings and logits of K token ids.

    The state-dict keys are the parts listed in `coord_adapter.format`. They are always the same, so that any model can
    load a checkpoint; sizes and tie mode come from the file. In tied mode `head_offset` is an empty buffer.

    The module has no reference to its owner model, since PEFT deep-copies it for each adapter. All computation is
    inside `forward`, because ZeRO-3 gathers parameters only around a module's call.
    """

    token_ids: Tensor
    fingerprint: Tensor

    def __init__(
        self,
        token_ids: Sequence[int],
        hidden_size: int,
        *,
        tied: bool,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        fingerprint: str | None = None,
        vocab_rows: int | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.vocab_rows = vocab_rows
        self.register_buffer("token_ids", torch.tensor(list(token_ids), dtype=torch.long, device=device))
        shape_KH = (len(self.token_ids), hidden_size)
        self.embed_offset = nn.Parameter(torch.zeros(shape_KH, dtype=dtype, device=device))
        self._set_head_rows(0 if tied else shape_KH[0])
        self.register_buffer("fingerprint", encode_fingerprint(fingerprint).to(device))
        self.register_buffer("format_version", torch.tensor([FORMAT_VERSION], dtype=torch.uint8, device=device))

    @property
    def tied(self) -> bool:
        """Whether embedding and head share one table; independent of sizes, which partitioned parameters lack."""
        return "head_offset" not in self._parameters

    @property
    def head_table(self) -> Tensor:
        """The table [K, H] that the head uses."""
        return self.embed_offset if self.tied else self.head_offset

    @property
    def fingerprint_text(self) -> str | None:
        """Fingerprint of the vocabulary that the offsets were trained with; None if unknown."""
        return _text(self.fingerprint)

    def extra_repr(self) -> str:
        """Return the sizes that `print(model)` shows."""
        return f"rows={self.token_ids.numel()}, hidden_size={self.hidden_size}, tied={self.tied}"

    def forward(
        self,
        inputs: Tensor | None,
        outputs: Tensor | None,
        site: Literal["embed", "head", "head_table"],
        scale: Tensor | None = None,
    ) -> Tensor:
        """Add the offsets at one site.

        Args:
            inputs: input of the embedding (ids [...]) or of the head (hidden states [..., H])
            outputs: its output: embeddings [..., H], or logits [..., V], which are changed in place
            site: "embed", "head", or "head_table", for which the tensors are None
            scale: factor [] of the embedding's rows; None for 1

        Returns:
            The outputs with offsets; for "head_table" a copy of the head's table [K, H].

        Raises:
            ValueError: if inputs or outputs are spread over ranks (tensor parallelism)
        """
        if site == "head_table":
            return self.head_table.clone()
        assert inputs is not None and outputs is not None
        if isinstance(inputs, DTensor) or isinstance(outputs, DTensor):
            name = "lm_head" if site == "head" else "the embedding"
            raise ValueError(
                f"tensor parallelism spreads {name} over ranks, and coordinate offsets are added to whole rows: leave "
                f"{name} out of the plan, or shard with FSDP2, which gathers them"
            )
        if site == "embed":
            return self._add_to_embeddings(inputs, outputs, scale)
        return self._add_to_logits(inputs, outputs)

    def _add_to_embeddings(self, ids_BT: Tensor, embeds_BTH: Tensor, scale: Tensor | None) -> Tensor:
        sorted_ids, order = self.token_ids.sort()
        index_BT = torch.searchsorted(sorted_ids, ids_BT.contiguous()).clamp_(max=len(sorted_ids) - 1)
        has_offset_BT1 = (sorted_ids[index_BT] == ids_BT).unsqueeze(-1)
        offset_BTH = embedding(order[index_BT], self.embed_offset)
        offset_BTH = offset_BTH if scale is None else offset_BTH * scale
        return torch.where(has_offset_BT1, moved_rows(embeds_BTH, offset_BTH), embeds_BTH)

    def _add_to_logits(self, hidden_BTH: Tensor, logits_BTV: Tensor) -> Tensor:
        # The tables are on the embedding's device; with a device map the head may be on another one.
        delta_BTK = linear(hidden_BTH, self.head_table.to(hidden_BTH))
        # In place, since a copy of [B, T, V] would take more memory than everything else here.
        return logits_BTV.index_add_(-1, self.token_ids.to(logits_BTV.device), delta_BTK.to(logits_BTV.dtype))

    def _set_head_rows(self, rows: int) -> None:
        """Make `head_offset` a parameter or, if it has no rows, a buffer: some optimizers fail on empty parameters."""
        self._parameters.pop("head_offset", None)
        self._buffers.pop("head_offset", None)
        table = self.embed_offset.new_zeros(rows, self.hidden_size)
        if rows:
            self.head_offset = nn.Parameter(table, requires_grad=self.embed_offset.requires_grad)
        else:
            self.register_buffer("head_offset", table)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take sizes and tie mode from the checkpoint, report incompatible tensors as errors, then load as usual."""
        saved = {name: state_dict[prefix + name] for name in self.state_dict() if prefix + name in state_dict}
        # PEFT's `original_module` is frozen, so its tables are missing in DeepSpeed's checkpoints of a PEFT model.
        is_frozen_original = prefix.endswith(".original_module.") and "embed_offset" not in saved
        # Parameters partitioned by DeepSpeed have no size here; DeepSpeed restores them from its own shards.
        if saved and not is_frozen_original and not hasattr(self.embed_offset, "ds_id"):
            problem = self._problem_with(saved)
            if problem:
                error_messages: list[str] = rest[-1]
                error_messages.append(f"{prefix.rstrip('.')}: {problem}")
                return
            self._take_sizes(saved)
            self._reconcile_fingerprint(state_dict, prefix + "fingerprint")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _problem_with(self, saved: dict[str, Tensor]) -> str | None:
        absent = [name for name in TABLES if name not in saved]
        if absent:
            return (
                f"the checkpoint has only {sorted(saved)}; {absent} are missing. Sizes are taken from "
                "the file, so load without ignore_mismatched_sizes, which drops tensors of another size."
            )
        ids_K = saved["token_ids"]
        version = int(saved["format_version"][0]) if "format_version" in saved else FORMAT_VERSION
        return (
            problem_with_version(version)
            or problem_with_shapes(len(ids_K), saved["embed_offset"], saved["head_offset"], self.hidden_size)
            or problem_with_ids(ids_K.tolist(), self.vocab_rows)
            or problem_with_fingerprint(_text(saved.get("fingerprint")), self.fingerprint_text)
        )

    def _take_sizes(self, saved: dict[str, Tensor]) -> None:
        rows = saved["token_ids"].shape[0]
        if rows != self.token_ids.shape[0]:
            self.token_ids = self.token_ids.new_zeros(rows)
            self.embed_offset = nn.Parameter(
                self.embed_offset.new_zeros(rows, self.hidden_size), requires_grad=self.embed_offset.requires_grad
            )
        if saved["head_offset"].shape[0] != self.head_offset.shape[0]:
            self._set_head_rows(saved["head_offset"].shape[0])

    def _reconcile_fingerprint(self, state_dict: dict[str, Any], key: str) -> None:
        saved = _text(state_dict.get(key))
        if saved is None:
            warnings.warn(
                "The saved coordinate offsets have no vocabulary fingerprint: it cannot be checked that they "
                f"were trained with this tokenizer (expected: {self.fingerprint_text or 'unknown'}).",
                stacklevel=2,
            )
            if key in state_dict:
                state_dict[key] = self.fingerprint
        else:
            self.fingerprint = torch.zeros_like(state_dict[key], device=self.fingerprint.device)


def moved_rows(rows_KH: Tensor, offset_KH: Tensor) -> Tensor:
    """Return rows plus their offsets [..., H], summed in float32 or wider and rounded once to the rows' dtype."""
    # In bfloat16 small offsets would be lost.
    wide = torch.promote_types(torch.promote_types(rows_KH.dtype, offset_KH.dtype), torch.float32)
    return (rows_KH.to(wide) + offset_KH.to(wide)).to(rows_KH.dtype)


def _text(fingerprint: Tensor | None) -> str | None:
    return None if fingerprint is None else decode_fingerprint(fingerprint.tolist())
