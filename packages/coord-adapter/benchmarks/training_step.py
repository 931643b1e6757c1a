"""What training the coordinate rows costs: step time and memory, against the other ways to train a vocabulary.

    python benchmarks/training_step.py [--variants offsets ...] [--layers 2] [--tokens 128] [--rounds 5] [--threads 1]

A text model with the vocabulary and width of Qwen3-VL-2B (V=152,670, H=2048, tied, float32) and few layers, so that
the vocabulary's share of a step is larger than in reality; LoRA on its linear layers in every variant. All variants
share one set of base weights in one process and take turns: what is told is the median of the ratios to the frozen
step of the same round, with the smallest and the largest. "frozen again" shows the noise. Those that train whole
tables come one by one after the others, since each holds gigabytes; on a machine without room they are left out.
One thread's time is processor time, which other processes disturb least; several threads' is the clock's.
Memory is what a step takes at its worst above the base weights: trained copies, gradients, optimizer, activations.
"""

import argparse
import ctypes
import gc
import statistics
import time
import warnings
from copy import deepcopy
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from coord_adapter import install_coord_offset_adapter, with_offset_modules

V, H, COORDINATES = 152_670, 2048, range(151_670, 152_670)
TABLE = 4 * V * H
LIGHT = ("frozen again", "offsets", "trainable_token_indices")
HEAVY = {"full embedding": 4 * TABLE, "modules_to_save": 9 * TABLE}  # bytes needed, with some to spare
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def build_base(layers):
    """The base model, its weights drawn once."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=V, hidden_size=H, intermediate_size=6144, num_hidden_layers=layers, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def sharing(base):
    """A model of its own on the same weights."""
    memo = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in base.parameters()}
    return deepcopy(base, memo)


def build(variant, base):
    """The model of a variant, ready to train."""
    torch.manual_seed(1)
    model = sharing(base)
    arguments = {"r": 16, "target_modules": LAYERS}
    if variant == "offsets":
        install_coord_offset_adapter(model, COORDINATES)
        arguments = with_offset_modules(arguments)
    elif variant == "trainable_token_indices":
        arguments["trainable_token_indices"] = {"embed_tokens": list(COORDINATES)}
    elif variant == "modules_to_save":
        arguments["modules_to_save"] = ["embed_tokens", "lm_head"]
    adapted = get_peft_model(model, LoraConfig(**arguments))
    if variant == "full embedding":
        model.get_input_embeddings().weight.requires_grad_(True)
    return adapted.train()


class Training:
    """One variant: its model, its optimizer and what was measured."""

    def __init__(self, variant, base, tokens):
        forget_peak()
        before = resident("VmRSS")
        self.variant, self.model = variant, build(variant, base)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
        self.ids_BT = torch.randint(0, V, (1, tokens), generator=torch.Generator().manual_seed(1))
        self.ids_BT[:, ::2] = self.ids_BT[:, ::2] % len(COORDINATES) + COORDINATES.start
        self.step()  # makes the optimizer's state
        forget_peak()
        self.step()
        self.peak = resident("VmHWM") - before
        states = self.optimizer.state.values()
        self.state = sum(t.numel() * t.element_size() for state in states for t in state.values())
        self.seconds = []

    def step(self):
        """One training step; returns its seconds."""
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        start = clock()
        self.model(input_ids=self.ids_BT, labels=self.ids_BT).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return clock() - start


def take_turns(trainings, rounds):
    """Time the variants in turns, each round beginning with another one."""
    for number in range(rounds):
        shift = number % len(trainings)
        for training in trainings[shift:] + trainings[:shift]:
            training.seconds.append(training.step())


def tell(training, frozen):
    """One line of the table; the frozen steps are those of the same rounds."""
    same_rounds = frozen.seconds[-len(training.seconds) :]
    ratios = [b / a for a, b in zip(same_rounds, training.seconds, strict=True)]
    print(
        f"{training.variant} | {statistics.median(training.seconds):.2f} | {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f}-{max(ratios):.3f}) | {training.peak / 1e6:,.0f} | {training.state / 1e6:,.1f}",
        flush=True,
    )


def resident(field):
    """Bytes of `VmRSS` or `VmHWM` of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def forget_peak():
    """Give freed memory back and begin a new `VmHWM`."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def available():
    """Bytes that the machine can give without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--heavy-rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--variants", nargs="+", choices=(*LIGHT, *HEAVY), default=(*LIGHT, *HEAVY))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    base = build_base(options.layers)
    forget_peak()
    print(
        f"V={V} H={H}, {options.layers} layers, {options.tokens} tokens, {options.threads} thread(s), float32"
    )
    print("variant | step s | x frozen, median (range) | MB above the weights | optimizer MB")
    frozen = Training("frozen", base, options.tokens)
    light = [Training(name, base, options.tokens) for name in LIGHT if name in options.variants]
    take_turns([frozen, *light], options.rounds)
    for training in (frozen, *light):
        tell(training, frozen)
    del light
    for name, needed in HEAVY.items():
        if name not in options.variants:
            continue
        gc.collect()
        if available() < needed + 1e9:
            print(f"{name} | left out: needs {needed / 1e9:.1f} GB, {available() / 1e9:.1f} GB are free")
            continue
        training = Training(name, base, options.tokens)
        take_turns([frozen, training], options.heavy_rounds)
        tell(training, frozen)
        del training


if __name__ == "__main__":
    main()
