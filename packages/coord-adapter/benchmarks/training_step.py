"""Measure what training the coordinate rows costs: step time and memory, against the other ways to train a vocabulary.

    python benchmarks/training_step.py [--variants offsets ...] [--layers 2] [--tokens 128] [--rounds 5] [--threads 1]

A text model with the vocabulary and width of Qwen3-VL-2B (V=152,670, H=2048, tied, float32) and few layers, so that
the vocabulary's share of a step is larger than in reality; LoRA on its linear layers in every variant. All variants
share one set of base weights in one process and are timed in turns. Reported is the median of the ratios to the
frozen step of the same round, with the smallest and the largest; "frozen again" shows the noise. Variants that train
whole tables follow one by one, since each needs gigabytes; on a machine with too little memory they are left out.
With one thread the time is processor time, which other processes disturb least; with several it is elapsed time.
Memory is the peak of a step above the base weights: trained copies, gradients, optimizer state, activations.
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
    """Return the base model with random weights."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=V, hidden_size=H, intermediate_size=6144, num_hidden_layers=layers, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def sharing(base):
    """Return a copy of the model that shares its weights."""
    memo = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in base.parameters()}
    return deepcopy(base, memo)


def build(variant, base):
    """Return the model of a variant, ready to train."""
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
    """One variant: its model, its optimizer and its measurements."""

    def __init__(self, variant, base, tokens):
        reset_peak()
        before = resident("VmRSS")
        self.variant, self.model = variant, build(variant, base)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
        self.ids_BT = torch.randint(0, V, (1, tokens), generator=torch.Generator().manual_seed(1))
        self.ids_BT[:, ::2] = self.ids_BT[:, ::2] % len(COORDINATES) + COORDINATES.start
        self.step()  # makes the optimizer's state
        reset_peak()
        self.step()
        self.peak = resident("VmHWM") - before
        states = self.optimizer.state.values()
        self.state = sum(t.numel() * t.element_size() for state in states for t in state.values())
        self.seconds = []

    def step(self):
        """Take one training step; return its seconds."""
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        start = clock()
        self.model(input_ids=self.ids_BT, labels=self.ids_BT).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return clock() - start


def take_turns(trainings, rounds):
    """Time the variants in turns, each round starting with another one."""
    for number in range(rounds):
        shift = number % len(trainings)
        for training in trainings[shift:] + trainings[:shift]:
            training.seconds.append(training.step())


def print_row(training, frozen):
    """Print one line of the table; the frozen steps are those of the same rounds."""
    same_rounds = frozen.seconds[-len(training.seconds) :]
    ratios = [b / a for a, b in zip(same_rounds, training.seconds, strict=True)]
    print(
        f"{training.variant} | {statistics.median(training.seconds):.2f} | {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f}-{max(ratios):.3f}) | {training.peak / 1e6:,.0f} | {training.state / 1e6:,.1f}",
        flush=True,
    )


def resident(field):
    """Return the bytes of `VmRSS` or `VmHWM` of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def reset_peak():
    """Return freed memory to the system and reset `VmHWM`."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def available():
    """Return the bytes that are available without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    reset_peak()
    print(f"V={V} H={H}, {options.layers} layers, {options.tokens} tokens, {options.threads} thread(s), float32")
    print("variant | step s | x frozen, median (range) | MB above the weights | optimizer MB")
    frozen = Training("frozen", base, options.tokens)
    light = [Training(name, base, options.tokens) for name in LIGHT if name in options.variants]
    take_turns([frozen, *light], options.rounds)
    for training in (frozen, *light):
        print_row(training, frozen)
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
        print_row(training, frozen)
        del training


if __name__ == "__main__":
    main()
