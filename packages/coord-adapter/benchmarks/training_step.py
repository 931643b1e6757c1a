"""What training the coordinate rows costs: step time and memory, against the other ways to train a vocabulary.

    python benchmarks/training_step.py [--variants offsets ...] [--layers 2] [--tokens 128] [--steps 5]

A text model with the vocabulary and width of Qwen3-VL-2B (V=152,670, H=2048, tied, float32) and few layers, so that
the vocabulary's share of a step is larger than in reality; LoRA on its linear layers in every variant. Times are
processor time on one thread, which other processes disturb least, and paired: each variant takes turns with the
frozen one in the same process. "frozen" against itself shows the noise. Memory is that of a process of its own.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM

from coord_adapter import install_coord_offset_adapter, with_offset_modules

V, H, COORDINATES = 152_670, 2048, range(151_670, 152_670)
VARIANTS = ("frozen", "offsets", "trainable_token_indices", "full embedding", "modules_to_save")
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def build(variant, layers):
    """The model of a variant, ready to train."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=V, hidden_size=H, intermediate_size=6144, num_hidden_layers=layers, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    base = Qwen3ForCausalLM(config)
    arguments = {"r": 16, "target_modules": LAYERS}
    if variant == "offsets":
        install_coord_offset_adapter(base, COORDINATES)
        arguments = with_offset_modules(arguments)
    elif variant == "trainable_token_indices":
        arguments["trainable_token_indices"] = {"embed_tokens": list(COORDINATES)}
    elif variant == "modules_to_save":
        arguments["modules_to_save"] = ["embed_tokens", "lm_head"]
    model = get_peft_model(base, LoraConfig(**arguments))
    if variant == "full embedding":
        base.get_input_embeddings().weight.requires_grad_(True)
    return model.train()


def stepper(model, tokens):
    """A function that takes one training step and returns its processor seconds, and the optimizer."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids_BT = torch.randint(0, V, (1, tokens), generator=torch.Generator().manual_seed(1))
    ids_BT[:, ::2] = ids_BT[:, ::2] % len(COORDINATES) + COORDINATES.start

    def step():
        start = time.process_time()
        model(input_ids=ids_BT, labels=ids_BT).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - start

    return step, optimizer


def measure_memory(variant, options):
    """Peak resident memory of the process and bytes of optimizer state, after two steps."""
    step, optimizer = stepper(build(variant, options.layers), options.tokens)
    step(), step()
    state = sum(t.numel() * t.element_size() for s in optimizer.state.values() for t in s.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak_mb": peak / 1e6, "optimizer_mb": state / 1e6}


def measure_time(variant, options):
    """Median seconds of a step, and the median of the ratios to the frozen step taken just before."""
    frozen, _ = stepper(build("frozen", options.layers), options.tokens)
    other, _ = stepper(build(variant, options.layers), options.tokens)
    frozen(), other()
    pairs = [(frozen(), other()) for _ in range(options.steps)]
    return {
        "frozen_s": statistics.median(a for a, _ in pairs),
        "seconds": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(b / a for a, b in pairs),
    }


def in_a_process(measure, variant, options):
    """Run one measurement in a fresh interpreter."""
    command = [sys.executable, __file__, "--measure", measure, "--variant", variant]
    for name in ("layers", "tokens", "steps"):
        command += [f"--{name}", str(getattr(options, name))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--measure", choices=("memory", "time"), help=argparse.SUPPRESS)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.measure:
        measure = measure_memory if options.measure == "memory" else measure_time
        print(json.dumps(measure(options.variant, options)))
        return
    print(f"V={V} H={H}, {options.layers} layers, {options.tokens} tokens, one thread, float32")
    print("variant | step s | x frozen | peak MB | optimizer MB")
    for variant in options.variants:
        speed = in_a_process("time", variant, options)
        memory = in_a_process("memory", variant, options)
        print(
            f"{variant} | {speed['seconds']:.2f} | {speed['ratio']:.3f} | {memory['peak_mb']:.0f} | "
            f"{memory['optimizer_mb']:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
