r"""Measures peak extra memory and time, forward and backward, of the fused objective against full logits.

Each case runs in its own process, so that it has its own peak. Extra memory is the peak of resident memory (on CUDA:
of allocated memory) above the level before the first pass: hidden states, weight and torch itself are not counted,
all gradients are. Time is that of the fastest pass; on a machine that is busy use `--threads 1 --clock cpu`.

    python packages/coord-losses/benchmarks/fused_memory.py           # H 1024, N 512 and 2048, frozen head
    python packages/coord-losses/benchmarks/fused_memory.py --hidden 2048 --rows 4096 --passes 1
    python packages/coord-losses/benchmarks/fused_memory.py --vocab 152704 248320    # Qwen3-VL's and Qwen3.5's
    python packages/coord-losses/benchmarks/fused_memory.py --cases trained_cross_entropy trained_known_a
    uv run --with liger-kernel --with cut-cross-entropy \
        python packages/coord-losses/benchmarks/fused_memory.py --cases all

Liger's kernels and those of Cut Cross-Entropy need a GPU (Triton); on a CPU the latter's `torch_compile` takes part.
What cannot run says why and is left out. Rows of cross-entropy alone do the same work: full logits, group A, torch,
Liger and CCE.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch

from coord_codec import CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots

QWEN3_VL = 152_704
"""Vocabulary size of Qwen3-VL with coordinate tokens, as exports pad it; here the last rows are coordinates."""
EVERYTHING = ObjectiveConfig.mixed(box_weight=1.0)
FULL = ("cross_entropy", "trained_cross_entropy")
CASES = {
    "cross_entropy": "F.cross_entropy on full logits",
    "readable_all": "readable objective, all terms",
    "products": "the two matrix products alone, 64 MiB of logits at a time",
    "fused_a": "fused, group A (CE alone)",
    "fused_soft": "fused, soft CE + W1 + gate",
    "fused_b": "fused, group B",
    "fused_all": "fused, all terms",
    "torch": "F.linear_cross_entropy, 512 rows at a time",
    "liger": "Liger's fused linear CE",
    "cce": "Cut Cross-Entropy (on a CPU its torch_compile)",
    "trained_cross_entropy": "trained head: F.cross_entropy",
    "trained_torch": "trained head: F.linear_cross_entropy, 512 rows",
    "trained_liger": "trained head: Liger's fused linear CE",
    "trained_cce": "trained head: Cut Cross-Entropy",
    "trained_fused_a": "trained head: fused, group A",
    "trained_known_a": "trained head: fused, group A, denominators given",
}
DEFAULT_CASES = [case for case in CASES if not case.startswith("trained") and case not in ("liger", "cce")]


def batch(rows: int, hidden: int, vocab_size: int, device: str, dtype: torch.dtype) -> tuple:
    """Return a batch a quarter of whose rows are coordinates, in objects of four."""
    torch.manual_seed(0)
    weight = torch.empty(vocab_size, hidden, dtype=dtype, device=device).normal_(0, 0.02)
    states = torch.randn(rows, hidden, device=device).to(dtype)
    vocab = CoordVocab(vocab_size - 1000)
    targets = torch.randint(0, vocab.first_id - 1, (rows,), device=device)
    coords = rows // 16 * 4
    targets[:coords] = torch.randint(vocab.ids[0], vocab.ids[-1] + 1, (coords,), device=device)
    corners = torch.rand(coords // 4, 2, 2, device=device)
    boxes = torch.cat([corners.amin(1), corners.amax(1)], dim=1)
    slots = torch.arange(coords, device=device).view(-1, 4)
    return states, weight, targets, ObjectSlots(slots, boxes, torch.zeros_like(slots[:, 0]))


def forward_backward(case: str, chunk_rows: int | None, states, weight, targets, objects) -> Callable[[], None]:
    """Return the function that is timed, forward and backward."""
    configs = {
        "a": ObjectiveConfig.group_a(),
        "soft": ObjectiveConfig.soft(),
        "b": ObjectiveConfig.group_b(),
        "all": EVERYTHING,
    }
    plain, vocab = case.removeprefix("trained_"), CoordVocab(len(weight) - 1000)
    form, name = plain.rsplit("_", 1) if "_" in plain else (plain, "")

    def cross_entropy() -> None:
        torch.nn.functional.cross_entropy((states @ weight.T).float(), targets).backward()

    def readable() -> None:
        CoordObjective(configs[name], vocab)(states @ weight.T, targets, objects).total().backward()

    def fused() -> None:
        objective = CoordObjective(configs[name], vocab)
        objective.fused(states, weight, targets, objects, chunk_rows=chunk_rows).total().backward()

    def known() -> None:
        objective, counts = CoordObjective(configs[name], vocab), {"tokens": len(targets)}
        objective.fused(states, weight, targets, objects, denominators=counts).total(counts).backward()

    @torch.no_grad()
    def products() -> None:
        for rows in states.split(chunk_rows or max(1, (1 << 26) // (weight.itemsize * len(weight)))):
            (rows @ weight.T) @ weight

    def torch_chunks() -> None:
        options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=512, chunking_method=None)
        torch.nn.functional.linear_cross_entropy(states, weight, targets, options=options).backward()

    def liger() -> None:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        LigerFusedLinearCrossEntropyLoss()(weight, states, targets).backward()

    def cut() -> None:
        from cut_cross_entropy import linear_cross_entropy

        implementation = "torch_compile" if states.device.type == "cpu" else "cce"
        linear_cross_entropy(states, weight, targets, impl=implementation).backward()

    forms = {
        "cross": cross_entropy,
        "readable": readable,
        "fused": fused,
        "known": known,
        "products": products,
        "torch": torch_chunks,
        "liger": liger,
        "cce": cut,
    }
    return forms[form]


def peak_mb(device: str) -> float:
    """Return the peak memory since `reset_peak`."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")


def measure(case: str, rows: int, args: argparse.Namespace) -> dict[str, float]:
    """Measure one case, in the child process."""
    torch.set_num_threads(args.threads)
    states, weight, targets, objects = batch(rows, args.hidden, args.vocab[0], args.device, getattr(torch, args.dtype))
    states.requires_grad_()
    weight.requires_grad_(case.startswith("trained"))
    warm_states, warm_weight = torch.randn(8, 64, requires_grad=True), torch.randn(2000, 64)
    torch.nn.functional.cross_entropy(warm_states @ warm_weight.T, targets[:8].cpu() % 2000).backward()
    run = forward_backward(case, args.chunk_rows, states, weight, targets, objects)
    if case.endswith("cce"):
        run()  # compiles
        states.grad = weight.grad = None
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    reset_peak(args.device)
    before, best = peak_mb(args.device), float("inf")
    for _ in range(args.passes):
        states.grad = weight.grad = None
        start = clock()
        run()
        if args.device == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - start)
    return {"mb": peak_mb(args.device) - before, "s": best}


def report(rows: int, vocab_size: int, args: argparse.Namespace, results: dict[str, dict[str, float]]) -> None:
    """Print a table of one batch size, with ratios to full logits and to the products alone."""
    print(f"\nN={rows}, H={args.hidden}, V={vocab_size}, {args.dtype}, {args.device}, {args.threads} threads\n")
    print("| case | extra MB | of full logits | s | of full logits | of the products |")
    print("|---|---|---|---|---|---|")
    for case, found in results.items():
        full = results.get(FULL[case.startswith("trained")])
        base = results.get("products")
        memory, duration = ((f"{found[k] / full[k]:.3f}" if full else "") for k in ("mb", "s"))
        against = f"{found['s'] / base['s']:.3f}" if base and not case.startswith("trained") else ""
        print(f"| {CASES[case]} | {found['mb']:.0f} | {memory} | {found['s']:.2f} | {duration} | {against} |")


def main() -> None:
    """Start a child process per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 2048], help="supervised rows N")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocab", type=int, nargs="+", default=[QWEN3_VL], help="vocabulary sizes V")
    parser.add_argument("--chunk-rows", type=int, help="rows at a time (default: the objective's own choice)")
    parser.add_argument("--cases", nargs="+", choices=[*CASES, "all"], default=DEFAULT_CASES)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="what is timed; cpu, with one thread, suits a busy machine",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if "all" in args.cases:
        args.cases = list(CASES)
    if args.child:
        print(json.dumps(measure(args.child, args.rows[0], args)))
        return
    for vocab_size, rows in product(args.vocab, args.rows):
        results = {}
        for case in args.cases:
            options = {k: v for k, v in vars(args).items() if v and k not in ("rows", "vocab", "cases", "child")}
            options |= {"rows": rows, "vocab": vocab_size, "child": case}
            command = [sys.executable, __file__]
            command += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{case}: {(done.stderr.strip().splitlines() or ['killed'])[-1]}", file=sys.stderr)
                continue
            results[case] = json.loads(done.stdout)
            print(f"V={vocab_size} N={rows} {case}: {results[case]}", file=sys.stderr, flush=True)
        report(rows, vocab_size, args, results)


if __name__ == "__main__":
    main()
