"""A CUDA device simulated in the memory of the CPU: which calls would fail on a real one, and which would wait for it.

Tensors on the simulated device hold ordinary memory and say that they are on `cuda:0`. Every call of torch's Python
functions inside `SimulatedDevice` is looked at:

- **mismatches**: operands on two devices, an index on the wrong one, `numpy()` of a tensor on the device. All of them
  are errors on a real device.
- **waits**: calls whose result the CPU needs, so that it waits until the device has finished (`item`, `tolist`,
  `nonzero`, masks as indices, copies to the CPU).

Values are real, so results compare with those of the CPU. `watch_backward` looks at the backward pass: of
`torch.autograd.Function`s written in Python, and for derivatives of torch's own that are known to wait. Kernels,
streams, memory and precisions of a real device are not simulated.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda:0")

_READS = {
    *("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__format__", "__contains__"),
    *("nonzero", "argwhere", "unique", "masked_select", "equal", "allclose", "is_nonzero"),
}
"""Functions whose result, or the size of it, the CPU needs."""

_WAITING_DERIVATIVES = ("ProdBackward", "CumprodBackward")
"""Nodes of the backward graph that ask the device whether a factor is zero."""

_TAKES_BOTH = {"copy_", "__setitem__", "__getitem__", "index_put_", "type_as", "__get__", "__set__", "backward"}
"""Functions that take tensors of two devices."""


_ANSWERS = {
    "is_available": True,
    "is_bf16_supported": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_name": "simulated",
    "get_device_capability": (9, 0),
    "mem_get_info": (80 << 30, 80 << 30),
    "get_rng_state": torch.zeros(8, dtype=torch.uint8),
    "get_rng_state_all": [torch.zeros(8, dtype=torch.uint8)],
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0),
    **dict.fromkeys(("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats")),
    **dict.fromkeys(("set_rng_state", "set_rng_state_all")),
}
"""What functions of `torch.cuda` return."""


class DeviceTensor(torch.Tensor):
    """A tensor that counts as one on the simulated device; in a file it is a usual one."""

    def __reduce_ex__(self, protocol):
        return _untagged(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            with torch._C.DisableTorchFunction():
                copied = self.detach().clone().as_subclass(DeviceTensor)
            if isinstance(self, nn.Parameter):
                copied = nn.Parameter(copied, requires_grad=self.requires_grad)
            memo[id(self)] = copied
        return memo[id(self)]


def on_device(value):
    """Return the tensors in `value`, a tensor or nested containers of them, as tensors on the device."""
    return tree_map(lambda x: _tagged(x) if isinstance(x, torch.Tensor) else x, value)


def move(module):
    """Put parameters and buffers of a module on the device, in place; returns the module."""
    moved = {}  # tied parameters stay tied
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and not _is_tagged(parameter):
                new = torch.nn.Parameter(_tagged(parameter.data), requires_grad=parameter.requires_grad)
                part._parameters[name] = moved.setdefault(parameter, new)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = _tagged(buffer)
    return module


def _module_to(own):
    def to(module, *args, **kwargs):
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        module = own(module, dtype=dtype) if dtype is not None else module
        if device is not None and device.type == "cpu" and any(_is_tagged(p) for p in module.parameters()):
            raise NotImplementedError("a model that leaves the simulated device")
        return move(module) if device is not None and device.type == "cuda" else module

    return to


def _open_tensors(own):
    """Return `safetensors.safe_open` that reads to the simulated device; its tensors come from outside Python."""

    @contextmanager
    def safe_open(filename, framework, device="cpu", **settings):
        with own(filename, framework, device=str(_held_on(device)), **settings) as file:
            if not _is_device(device):
                yield file
                return
            yield SimpleNamespace(
                keys=file.keys,
                metadata=file.metadata,
                get_tensor=lambda name: on_device(file.get_tensor(name)),
                get_tensors=lambda: on_device(file.get_tensors()),
            )

    return safe_open


def _forget_devices() -> None:
    """Make transformers and accelerate ask again whether there is a device."""
    for name in ("transformers.utils.import_utils", "accelerate.utils.imports"):
        for function in vars(sys.modules.get(name)).values() if name in sys.modules else ():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(reset_partial_state=True)


def watch_backward(loss):
    """Look at the backward pass of `loss` too: gradients arrive at functions written in Python as device tensors."""
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        assert not node.name().startswith(_WAITING_DERIVATIVES), f"{node.name()} waits for the device"
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            node.register_prehook(lambda grads: tuple(None if g is None else _tagged(g) for g in grads))
        waiting += [before for before, _ in node.next_functions]
    return loss


class SimulatedDevice(TorchFunctionMode):
    """Look at every call of torch's functions, and count mismatches and waits by the line that makes the call.

    Attributes:
        mismatches: (function, line) to the number of calls that would fail
        waits: (function, line) to the number of calls that would wait

    Example:
        >>> with SimulatedDevice() as device:
        ...     _ = on_device(torch.ones(2)) + torch.ones(2)
        >>> sum(device.mismatches.values()), sum(device.waits.values())
        (1, 0)
    """

    def __init__(self) -> None:
        super().__init__()
        self.mismatches: Counter[tuple[str, str]] = Counter()
        self.waits: Counter[tuple[str, str]] = Counter()
        self._patches = ExitStack()

    def __enter__(self):
        # Code asks whether there is a device before it uses one, and libraries remember the answer.
        _forget_devices()
        for name, result in _ANSWERS.items():
            for module in (torch.cuda, torch.cuda.random):
                if hasattr(module, name):
                    self._patches.enter_context(mock.patch.object(module, name, return_value=result))
        self._patches.enter_context(mock.patch.object(nn.Module, "to", _module_to(nn.Module.to)))
        self._patches.enter_context(mock.patch.object(nn.Module, "cuda", lambda module, device=None: move(module)))
        self._patches.enter_context(
            mock.patch.object(torch.optim.Optimizer, "_accelerator_graph_capture_health_check")  # asks the driver
        )
        if captured := sys.modules.get("coord_detect.speed.passes"):  # a recording needs the driver
            self._patches.enter_context(mock.patch.object(captured, "Captured", self._run_uncaptured))
        if one_pass := sys.modules.get("coord_losses.fused.one_pass"):  # compiling needs the driver
            self._patches.enter_context(mock.patch.object(one_pass, "_COMPILED_ON", set()))
        if files := sys.modules.get("safetensors.torch"):
            self._patches.enter_context(mock.patch.object(files, "safe_open", _open_tensors(files.safe_open)))
        # Threads that load weights would be outside this mode.
        self._patches.enter_context(mock.patch.dict(os.environ, HF_DEACTIVATE_ASYNC_LOAD="1"))
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._patches.close()
        _forget_devices()

    def _run_uncaptured(self, run):
        """Stand in for `Captured`: run the function itself, whose waits would fail its recording."""

        def checked(*arguments, **settings):
            before = self.waits.copy()
            result = run(*arguments, **settings)
            assert self.waits == before, f"waits within a CUDA graph: {self.waits - before}"
            return result

        return checked

    def waits_of(self, *packages: str) -> Counter[tuple[str, str]]:
        """Return the waits of lines of these packages, named as in `coord_losses`."""
        return Counter({key: n for key, n in self.waits.items() if key[1].startswith(packages)})

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", str(func))
        if name == "__get__" and isinstance(args[0], DeviceTensor):
            attribute = getattr(getattr(func, "__self__", None), "__name__", "")
            if attribute in (known := {"device": DEVICE, "is_cuda": True, "is_cpu": False}):
                return known[attribute]
        if name in ("to", "cpu", "cuda"):
            return self._moved(func, name, args, kwargs)
        if name == "backward":
            watch_backward(args[0])
        if name == "pin_memory":
            if isinstance(args[0], DeviceTensor):
                self._count(self.mismatches, name)
            return args[0]
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        of_device = any(isinstance(x, DeviceTensor) for x in tensors)
        if of_device:
            self._look_at(name, args, kwargs, tensors)
        kwargs.pop("pin_memory", None)  # the driver would pin it
        asked = kwargs.get("device")
        if asked is not None:
            kwargs["device"] = _held_on(asked)
        out = _run(func, args, kwargs)
        if asked is not None:
            tagged = _is_device(asked)
        elif name == "copy_":
            tagged = isinstance(args[0], DeviceTensor)
        else:
            tagged = of_device
        return on_device(out) if tagged else out

    def _look_at(self, name, args, kwargs, tensors) -> None:
        elsewhere = any(not isinstance(x, DeviceTensor) and x.dim() for x in tensors)
        if elsewhere and name not in _TAKES_BOTH:
            self._count(self.mismatches, name)
        if name in ("__getitem__", "__setitem__"):
            indices = [x for x in tree_leaves(args[1]) if isinstance(x, torch.Tensor)]
            if any(x.dtype in (torch.bool, torch.uint8) and x.dim() for x in indices):
                self._count(self.waits, "mask as index")
            if not isinstance(args[0], DeviceTensor) and any(isinstance(x, DeviceTensor) for x in indices):
                self._count(self.mismatches, "index on the device")
        if name == "numpy":
            self._count(self.mismatches, name)
        if name in _READS:
            self._count(self.waits, name)
        if name == "copy_" and isinstance(args[1], DeviceTensor) and not isinstance(args[0], DeviceTensor):
            self._count(self.waits, "copy to the CPU")
        if name == "repeat_interleave" and len(tensors) > 1 and "output_size" not in kwargs:
            self._count(self.waits, name)

    def _moved(self, func, name, args, kwargs):
        asked = [a for a in (*args[1:], kwargs.get("device")) if isinstance(a, (str, torch.device))]
        like = [a for a in (*args[1:], kwargs.get("other")) if isinstance(a, torch.Tensor)]
        was = isinstance(args[0], DeviceTensor)
        if name != "to":
            final = name == "cuda"
        elif asked:
            final = _is_device(asked[0])
        else:
            final = isinstance(like[0], DeviceTensor) if like else was
        if was and not final:
            self._count(self.waits, "copy to the CPU")
        if name == "cuda":
            out = args[0]
        else:
            places = [_held_on(a) if isinstance(a, (str, torch.device)) else a for a in args[1:]]
            kwargs |= {"device": _held_on(kwargs["device"])} if "device" in kwargs else {}
            out = _run(func, (args[0], *places), kwargs)
        return _tagged(out) if final else _untagged(out)

    @staticmethod
    def _count(counter: Counter[tuple[str, str]], name: str) -> None:
        counter[name, _calling_line()] += 1


def _tagged(tensor):
    return tensor if isinstance(tensor, DeviceTensor) else tensor.as_subclass(DeviceTensor)


def _is_tagged(tensor) -> bool:
    return isinstance(tensor, DeviceTensor)


def _untagged(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def _run(func, args, kwargs):
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _is_device(device) -> bool:
    try:
        return torch.device(device).type == "cuda"
    except (RuntimeError, TypeError):
        return False


def _held_on(device):
    """Return the device whose memory holds tensors of `device`."""
    return torch.device("cpu") if _is_device(device) else device


def _calling_line() -> str:
    """Return package, file and line of the innermost caller outside torch and this file."""
    for frame in reversed(traceback.extract_stack()):
        if "/torch/" in frame.filename or frame.filename == __file__:
            continue
        return f"{_short(frame.filename.split('/'))}:{frame.lineno}"
    return "?"


def _short(parts: Iterable[str]) -> str:
    parts = list(parts)
    root = max((i for i, part in enumerate(parts) if part in ("src", "site-packages")), default=len(parts) - 3)
    return "/".join(parts[root + 1 :])
