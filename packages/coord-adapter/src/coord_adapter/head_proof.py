"""Proves while a model trains that its loss comes from the head with offsets, and lends moved rows to fused losses.

Trainers replace a model's `forward`, run its body and multiply by `lm_head.weight` themselves. No list of their names
is complete. So the gradient is observed: when it arrives at the body's hidden states, it must have come through the
logits of the head, or through the rows that `MovedHead` lent. These are hooks of autograd, which run on the host and
read no value of a tensor.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from types import CodeType, FrameType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from coord_adapter.tables import moved_rows

WAYS_OUT = {
    "liger_kernel": "set use_liger_kernel to false, or fused_linear_cross_entropy to False in liger_kernel_config",
    "cut_cross_entropy": "do not call cce_patch on the model",
}
"""How to switch off the fused loss of a package."""

_ANY_WAY_OUT = "take the loss from the logits that the model returns, or train with coord_losses.hf.CoordTrainer"
_BELOW = ("torch", "coord_adapter")
"""Modules between the model's body and the code that calls it."""

_BETWEEN = (*_BELOW, "peft", "accelerate", "deepspeed", "contextlib", "transformers.models", "transformers.utils")
"""Modules between the model's body and the code that trains."""


class HeadProof:
    """What has been seen of one model's passes: which of them still await a call of the head, and the gradients.

    Attributes:
        arrivals: number of times that a gradient arrived at the head, or that the head's part was done by others
    """

    def __init__(self) -> None:
        self.arrivals = 0
        self._caller = ""
        self._code: CodeType | None = None
        self._awaiting = False
        self._lent: MovedHead | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Keep nothing of the passes in a pickled model."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin anew."""
        self.__init__()  # type: ignore[misc]

    @property
    def awaits_head(self) -> bool:
        """Whether the body has returned to the function that is running now, and the head was not called since."""
        return self._awaiting and any(frame.f_code is self._code for frame in _frames(_BELOW))

    def begin(self) -> None:
        """Note who calls the body."""
        self._close()
        self._code = next((frame.f_code for frame in _frames(_BELOW)), None)
        outer = next(_frames(_BETWEEN), None)
        self._caller = "the code that calls the model" if outer is None else f"{_module(outer)}.{outer.f_code.co_name}"

    def body_returned(self, hidden_BTH: Tensor) -> None:
        """Await the head from here on; when a gradient arrives, it must have passed the head."""
        # In a backward pass only checkpointed activations are computed again, whose head has been called.
        if torch._C._current_graph_task_id() != -1:
            return
        self._awaiting = True
        if hidden_BTH.requires_grad:
            before, caller = self.arrivals, self._caller

            def arrived(_: Tensor) -> None:
                self._close()
                if self.arrivals == before:
                    raise ValueError(
                        f"{caller} computed the loss of this step without the output head, so that the coordinate "
                        f"offsets of the head have no part in it and are not trained: {way_out(caller)}. A loss that "
                        "is meant to leave the head out is computed within coord_adapter.bypass_head_hook(model)."
                    )

            _on_gradient(hidden_BTH, arrived)

    def head_called(self, moved_BTV: Tensor | None) -> None:
        """Note a call of the head; its logits are None if others add the offsets."""
        self._close()
        if moved_BTV is None:
            self.arrivals += 1
        elif moved_BTV.requires_grad:
            _on_gradient(moved_BTV, self._arrived)

    def moved_head(self, lend: "Callable[[], MovedHead]") -> "MovedHead":
        """Return the head with moved rows, computed once a pass."""
        if self._lent is None:
            self._lent = lend()
            self.arrivals += 1
        return self._lent

    def _arrived(self, _: Tensor) -> None:
        self.arrivals += 1

    def _close(self) -> None:
        self._awaiting, self._lent = False, None


class MovedHead:
    """A head [V, H] as code sees it that multiplies by its weight: the offsets are in its rows.

    The rows are sums rounded once to the dtype of the weight, as `bake_offsets` writes them, and differentiable with
    respect to the offsets. They take the memory of a second head during the pass. All other attributes are the head's.

    Args:
        head: a linear layer whose weight is frozen; sharded by FSDP2, the rows are gathered
        ids_K: token ids of the offsets
        offsets_KH: the offsets
    """

    def __init__(self, head: nn.Module, ids_K: Tensor, offsets_KH: Tensor) -> None:
        self._head, self._ids_K, self._offsets_KH = head, ids_K, offsets_KH

    def __getattr__(self, name: str) -> Any:
        """Return what the head has under this name."""
        return getattr(self._head, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the head, which adds the offsets itself."""
        return self._head(*args, **kwargs)

    @cached_property
    def weight(self) -> Tensor:
        """The weight [V, H] with moved rows.

        Raises:
            ValueError: if the weight is partitioned by ZeRO-3, which gathers it inside a forward pass alone
        """
        weight_VH: Any = self._head.weight
        if not weight_VH.numel():
            raise ValueError(
                "the loss multiplies by the head's weight, which ZeRO-3 has partitioned: coordinate offsets cannot be "
                "added to its rows; use stage 2, or a loss that calls the head"
            )
        weight_VH = weight_VH.full_tensor() if isinstance(weight_VH, DTensor) else weight_VH
        ids_K = self._ids_K.to(weight_VH.device)
        rows_KH = moved_rows(weight_VH[ids_K], self._offsets_KH.to(weight_VH.device))
        moved_VH = weight_VH.index_copy(0, ids_K, rows_KH)
        if hasattr(weight_VH, "ds_status"):  # TRL asks under ZeRO-3 whether the rows are gathered; they are by now
            moved_VH.ds_status = weight_VH.ds_status
        return cast(Tensor, moved_VH)

    @property
    def bias(self) -> Tensor | None:
        """The bias [V], if there is one."""
        bias_V: Any = self._head.bias
        return bias_V.full_tensor() if isinstance(bias_V, DTensor) else bias_V


def way_out(caller: str) -> str:
    """Return what to do about code that computes the loss without the head."""
    return WAYS_OUT.get(caller.partition(".")[0], _ANY_WAY_OUT)


def _on_gradient(x: Any, call: Callable[[Tensor], None]) -> None:
    x.register_hook(call)


def _frames(without: tuple[str, ...]) -> Iterator[FrameType]:
    """Yield the frames of the functions that are running, innermost first, except those of these packages."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = _module(frame)
        if not any(module == name or module.startswith(f"{name}.") for name in without):
            yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
