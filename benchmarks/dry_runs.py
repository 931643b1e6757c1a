"""Plans the memory of a training step for each size of Qwen3-VL and each kind of training, without weights.

    uv run python benchmarks/dry_runs.py [--sizes 2B --sizes 30B-A3B] [--pixels 401408] [--batch 4]

Writes the configuration of each published size (no weights) with Qwen's own tokenizer and coordinate tokens, and runs
`train --dry-run` on 16 generated annotations with eight objects each. Prints the parameters and gigabytes of one rank
without DeepSpeed. The tokenizer comes from a file in dashscope, a requirement of ms-swift. Nothing is downloaded.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image

ROOT = Path(__file__).parents[1]
TRAINER = [sys.executable, str(ROOT / "apps" / "trainer")]
_VISION = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "deepstack_visual_indexes": [5, 11, 17]}
_LARGE_VISION = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [8, 16, 24]}
SIZES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "2B": (
        {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
        _VISION,
        True,
    ),
    "4B": (
        {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
        _VISION,
        True,
    ),
    "8B": (
        {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32},
        _LARGE_VISION,
        False,
    ),
    "30B-A3B": (
        {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32}
        | {"num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
        _LARGE_VISION,
        False,
    ),
}
"""Language model, vision tower, and whether embedding and head share weights, from the checkpoints' config.json."""
CONFIGS = {
    "DoRA": ("configs/dlora/sft_base.yaml",),
    "DoRA + offsets": ("configs/dlora/coord_offset.yaml",),
    "all parameters": ("configs/base/coco_2b.yaml", "custom.coord_soft_ce_w1.enabled=true"),
}
MAKE_BASE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tiny_checkpoint import make_processor, make_qwen_tokenizer
from tokenizers import AddedToken
from transformers import Qwen2Tokenizer, Qwen3VLConfig, Qwen3VLMoeConfig
from coord_codec import WILDCARD_TOKEN, coord_tokens
folder, (text, vision, tied) = sys.argv[2], json.loads(sys.argv[3])
tokenizer = Qwen2Tokenizer(
    tokenizer_object=make_qwen_tokenizer()._tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
)
tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in [WILDCARD_TOKEN, *coord_tokens()]])
token_id = tokenizer.convert_tokens_to_ids
kind, name = (Qwen3VLMoeConfig, "Qwen3VLMoe") if "num_experts" in text else (Qwen3VLConfig, "Qwen3VL")
config = kind(
    architectures=[f"{name}ForConditionalGeneration"],
    text_config=dict(
        {"num_key_value_heads": 8} | text, vocab_size=-(-len(tokenizer) // 64) * 64, head_dim=128,
        max_position_embeddings=262_144, tie_word_embeddings=tied,
        rope_parameters=dict(
            rope_type="default", rope_theta=5e6, mrope_interleaved=True, mrope_section=[24, 20, 20]
        ),
    ),
    vision_config=dict(
        vision, num_heads=16, out_hidden_size=text["hidden_size"], patch_size=16, num_position_embeddings=2304
    ),
    tie_word_embeddings=tied,
    image_token_id=token_id("<|image_pad|>"), video_token_id=token_id("<|video_pad|>"),
    vision_start_token_id=token_id("<|vision_start|>"), vision_end_token_id=token_id("<|vision_end|>"),
)
config.save_pretrained(folder)
make_processor(tokenizer).save_pretrained(folder)
"""


def write_data(folder: Path, count: int = 16, objects: int = 8) -> Path:
    """Write instance records and their images of 1024 x 768 pixels."""
    draw = random.Random(0)
    rows = []
    for number in range(count):
        Image.effect_noise((1024, 768), 60).convert("RGB").save(folder / f"{number}.jpg")
        corners = [(draw.uniform(0, 0.5), draw.uniform(0, 0.5)) for _ in range(objects)]
        boxes = [{"desc": "traffic light", "bbox": [x, y, x + 0.3, y + 0.3]} for x, y in corners]
        rows.append({"image": f"{number}.jpg", "width": 1024, "height": 768, "image_id": number, "objects": boxes})
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def plan(base: Path, data: Path, words: tuple[str, ...], pixels: int, batch: int) -> dict[str, float]:
    """Return the output of `train --dry-run`: numbers of parameters, and the megabytes of each part."""
    config, *more = words
    command = [*TRAINER, "train", "-c", config, *more, "--dry-run", f"model.path={base}", f"data.annotations={data}"]
    command += ["data.images=null", "data.heldout_annotations=null", "data.heldout_images=null", "run.dir=runs/planned"]
    command += ["evaluation.images=none", f"data.max_pixels={pixels}", "model.attention=sdpa"]
    command += ["training.deepspeed=null", f"training.per_device_train_batch_size={batch}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    total, trained = re.search(r"model: ([\d,]+) parameters, ([\d,]+) trained", done.stdout).groups()  # type: ignore[union-attr]
    figures = {"parameters": float(total.replace(",", "")), "trained": float(trained.replace(",", ""))}
    parts = re.findall(r"^  ([a-z ]+?) +([\d,.]+) MB$", done.stdout, flags=re.MULTILINE)
    return figures | {name: float(value.replace(",", "")) for name, value in parts}


def main(
    sizes: Annotated[list[str] | None, typer.Option(help="Sizes of the model; all if none is given.")] = None,
    pixels: Annotated[int, typer.Option(help="Most pixels of an image.")] = 401_408,
    batch: Annotated[int, typer.Option(help="Samples per step.")] = 4,
) -> None:
    """Print the table."""
    print("| model | training | parameters | trained | weights | gradients | optimizer | activations | peak, GB | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        data = write_data(Path(scratch))
        for size in sizes or SIZES:
            base = Path(scratch) / size
            helpers = ROOT / "apps/exporter/tests"
            subprocess.run([sys.executable, "-c", MAKE_BASE, helpers, base, json.dumps(SIZES[size])], check=True)
            for name, words in CONFIGS.items():
                began = time.monotonic()
                figures = plan(base, data, words, pixels, batch)
                cells = [f"{figures['parameters'] / 1e9:.2f} G", f"{figures['trained'] / 1e6:,.0f} M"]
                cells += [
                    f"{figures[part] / 1e3:.1f}"
                    for part in ("weights", "gradients", "optimizer", "activations", "peak")
                ]
                print(f"| {size} | {name} | {' | '.join(cells)} | {time.monotonic() - began:.0f} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
