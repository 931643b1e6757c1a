"""Measures time, memory and host synchronisations of a function on one device, and prints Markdown tables."""

import gc
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Annotated

import torch
import typer
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
_WAITING = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.lift_fresh}


class Device(StrEnum):
    """The device to measure on."""

    cuda = "cuda"
    cpu = "cpu"


DeviceOption = Annotated[Device, typer.Option(help="cpu is for rehearsals")]
Quick = Annotated[bool, typer.Option("--quick", help="tiny sizes, as a rehearsal")]


@dataclass(frozen=True)
class Cost:
    """Resources of one call.

    Attributes:
        seconds: median over the repetitions, by CUDA events on a GPU
        extra_bytes: peak of allocated memory above what was there before the call; None on a CPU
        peak_bytes: peak of allocated memory; None on a CPU
        syncs: how often the host waits for the device; on a CPU the operations that would make it wait
    """

    seconds: float
    extra_bytes: int | None
    peak_bytes: int | None
    syncs: int


class _WaitingOperations(TorchDispatchMode):
    """Counts operations that copy a tensor from or to the host."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        indices = args[1] if func.overloadpacket in (aten.index, aten.index_put, aten.index_put_) else ()
        by_mask = any(i is not None and i.dtype == torch.bool for i in indices)
        self.count += func.overloadpacket in _WAITING or by_mask
        return func(*args, **(kwargs or {}))


def cost(run: Callable[[], object], device: str, repeats: int = 7, warm_up: int = 2) -> Cost:
    """Measure a function that keeps no memory after its call."""
    for _ in range(warm_up):
        run()
    if device == "cpu":
        with _WaitingOperations() as waiting:
            run()
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return Cost(statistics.median(seconds), None, None, waiting.count)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    syncs = _cuda_syncs(run)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    milliseconds = statistics.median(start.elapsed_time(end) for start, end in events)
    return Cost(milliseconds / 1e3, peak - before, peak, syncs)


def _cuda_syncs(run: Callable[[], object]) -> int:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in caught)


def release(device: str) -> None:
    """Release unreferenced memory to the device."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def megabytes(count: int | None) -> str:
    """Return the number of MB as text, empty for None."""
    return "" if count is None else f"{count / 1e6:,.0f}"


def tell(columns: str, rows: Iterable[Iterable[object]], title: str = "") -> None:
    """Print a Markdown table, each row when it is measured; the columns' names are separated by `|`."""
    names = [name.strip() for name in columns.split("|")]
    print(f"\n{title}\n" if title else "")
    for line in chain([names, ["---"] * len(names)], rows):
        print(f"| {' | '.join(map(str, line))} |", flush=True)


def note(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def machine(device: str) -> str:
    """Return device, driver and versions in one line."""
    names = ("torch", "transformers", "peft", "liger-kernel", "cut-cross-entropy", "quack-kernels", "ms-swift")
    found = [f"Python {platform.python_version()}", *(f"{n} {v}" for n in names if (v := _version(n)))]
    if device == "cpu":
        return f"CPU, {torch.get_num_threads()} threads; " + ", ".join(found)
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    gpu = done.stdout.strip() or torch.cuda.get_device_name()
    return f"{gpu}, CUDA {torch.version.cuda}; " + ", ".join(found)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
