"""Prints the memory of a training step for published models, by `train --dry-run` on models without weights.

The sizes of the language models were compared with public descriptions of each; what could not be is named as assumed
beside the model. Tokenizer and images are made, since only their numbers matter. With `--layers N` towers and language
models keep N layers, which a CPU can train: `memory.py` compares such a step with the estimate.

    uv run python apps/trainer/benchmarks/model_sizes.py [NAME ...]
"""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from PIL import Image

COORDINATES = 1001
"""Rows that `expand-vocab` adds: the wildcard and the coordinate tokens."""
QWEN3_VISION = {"patch_size": 16, "num_heads": 16, "num_position_embeddings": 2304}
SMALL = QWEN3_VISION | {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096}
LARGE = QWEN3_VISION | {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304}
DEEP_SMALL, DEEP_LARGE = {"deepstack_visual_indexes": [5, 11, 17]}, {"deepstack_visual_indexes": [8, 16, 24]}
WINDOWS = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14}
WINDOWS |= {"window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]}
QWEN3_ROPE = {"mrope_section": [24, 20, 20], "mrope_interleaved": True}
GATED_ROPE = {"mrope_section": [11, 11, 10], "mrope_interleaved": True, "partial_rotary_factor": 0.25}
QWEN2_ROPE = {"mrope_section": [16, 24, 24]}
GATED = {"linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "head_dim": 256}
TOWER = "vision tower, gated-delta heads"
PERIOD = ["linear_attention"] * 3 + ["full_attention"]


@dataclass(frozen=True)
class Published:
    """The sizes of a model: hidden width, MLP width, layers, attention heads, key-value heads, and the rest by key.

    `assumed` names what was written from memory.
    """

    kind: str
    rows: int
    text: tuple[int, int, int, int, int]
    vision: dict[str, Any]
    rope: dict[str, Any]
    tied: bool
    more: dict[str, Any] = field(default_factory=dict)
    assumed: str | None = None


MODELS = {
    "Qwen3.5-0.8B": Published(
        "qwen3_5",
        248_320,
        (1024, 3584, 24, 8, 2),
        QWEN3_VISION | {"depth": 12, "hidden_size": 768, "intermediate_size": 3072, "num_heads": 12},
        GATED_ROPE,
        True,
        GATED | {"linear_num_value_heads": 16},
        TOWER,
    ),
    "Qwen3.5-2B": Published(
        "qwen3_5",
        248_320,
        (2048, 6144, 24, 8, 2),
        SMALL,
        GATED_ROPE,
        True,
        GATED | {"linear_num_value_heads": 16},
        TOWER,
    ),
    "Qwen3.5-4B": Published(
        "qwen3_5",
        248_320,
        (2560, 9216, 32, 16, 4),
        SMALL,
        GATED_ROPE,
        True,
        GATED | {"linear_num_value_heads": 32},
        TOWER,
    ),
    "Qwen3.5-9B": Published(
        "qwen3_5", 248_320, (4096, 12288, 32, 16, 4), LARGE, GATED_ROPE, False, GATED | {"linear_num_value_heads": 32}
    ),
    "Qwen3.5-35B-A3B": Published(
        "qwen3_5_moe",
        248_320,
        (2048, 512, 40, 16, 2),
        LARGE,
        GATED_ROPE,
        False,
        GATED
        | {"linear_num_value_heads": 32, "num_experts": 256, "num_experts_per_tok": 8}
        | {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
    ),
    "Qwen3-VL-2B": Published(
        "qwen3_vl", 151_936, (2048, 6144, 28, 16, 8), SMALL | DEEP_SMALL, QWEN3_ROPE, True, {"head_dim": 128}
    ),
    "Qwen3-VL-4B": Published(
        "qwen3_vl", 151_936, (2560, 9728, 36, 32, 8), SMALL | DEEP_SMALL, QWEN3_ROPE, True, {"head_dim": 128}
    ),
    "Qwen3-VL-8B": Published(
        "qwen3_vl", 151_936, (4096, 12288, 36, 32, 8), LARGE | DEEP_LARGE, QWEN3_ROPE, False, {"head_dim": 128}
    ),
    "Qwen3-VL-30B-A3B": Published(
        "qwen3_vl_moe",
        151_936,
        (2048, 6144, 48, 32, 4),
        LARGE | DEEP_LARGE,
        QWEN3_ROPE,
        False,
        {"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    ),
    "Qwen2.5-VL-3B": Published("qwen2_5_vl", 151_936, (2048, 11008, 36, 16, 2), WINDOWS, QWEN2_ROPE, True),
    "Qwen2.5-VL-7B": Published("qwen2_5_vl", 152_064, (3584, 18944, 28, 28, 4), WINDOWS, QWEN2_ROPE, False),
}
CLASSES = {
    "qwen3_5": "Qwen3_5",
    "qwen3_5_moe": "Qwen3_5Moe",
    "qwen3_vl": "Qwen3VL",
    "qwen3_vl_moe": "Qwen3VLMoe",
    "qwen2_5_vl": "Qwen2_5_VL",
}
LORA = ["training.tuner_type=lora", "training.target_modules=[all-linear]", "custom.coord_offset.enabled=true"]
RECOMPUTED = "training.gradient_checkpointing=true"
COLUMNS = {
    "LoRA": LORA,
    "LoRA, checkpointing": [*LORA, RECOMPUTED],
    "DoRA, checkpointing": [*LORA, RECOMPUTED, "training.use_dora=true"],
    "full, checkpointing": [RECOMPUTED],
    "full, checkpointing, ZeRO-2 on 8": [RECOMPUTED, "training.deepspeed=zero2"],
    "full, checkpointing, ZeRO-3 on 8": [RECOMPUTED, "training.deepspeed=zero3"],
}
RANKS = 8
COMMON = [
    "model.dtype=bfloat16",
    "custom.coord_soft_ce_w1.enabled=true",
    "training.per_device_train_batch_size=1",
    "training.max_steps=2",
    "evaluation.images=none",
]


def write_base(name: str, folder: Path, layers: int | None = None, weights: bool = False) -> Path:
    """Write the checkpoint of a published model's sizes, without weights unless they are asked for.

    Args:
        name: a key of `MODELS`
        folder: the folder to write to
        layers: number of layers that tower and language model keep, None for all; four for gated-delta layers
        weights: whether to write random weights
    """
    import transformers

    from coord_detect.families.registry import FAMILIES
    from coord_trainer.config.sections import TinyModelConfig
    from coord_trainer.model.tiny import build_processor, train_tokenizer

    model, family = MODELS[name], FAMILIES[MODELS[name].kind]
    tokenizer = train_tokenizer(["Describe all objects in the image with their bounding boxes.", "car"])
    processor = build_processor(tokenizer, TinyModelConfig(max_pixels=4096 * 4096))
    processor.image_processor.patch_size = family.patch_size
    if model.kind == "qwen2_5_vl":
        processor = transformers.Qwen2_5_VLProcessor(
            image_processor=processor.image_processor,
            tokenizer=tokenizer,
            video_processor=transformers.Qwen2VLVideoProcessor(patch_size=14),
            chat_template=processor.chat_template,
        )
    end = "<|im_start|>assistant\n"
    processor.chat_template = processor.chat_template.replace(end, end + family.empty_thought)
    if family.system:
        system = f"<|im_start|>system\n{family.system}<|im_end|>\n"
        processor.chat_template = (
            "{% if messages[0].role != 'system' %}" + system + "{% endif %}" + processor.chat_template
        )
    hidden, ffn, depth, heads, groups = model.text
    kept = depth if layers is None else min(layers, depth)
    vision = model.vision | {"out_hidden_size": hidden}
    more = dict(model.more)
    if layers is not None:
        vision["depth"] = min(layers, vision["depth"])
        for key in ("deepstack_visual_indexes", "fullatt_block_indexes"):
            if key in vision:
                vision[key] = [vision["depth"] - 1]
    if "linear_num_key_heads" in more:
        more["layer_types"] = (PERIOD * kept)[:kept]
    token_id = tokenizer.convert_tokens_to_ids
    config = getattr(transformers, f"{CLASSES[model.kind]}Config")(
        text_config={
            "vocab_size": model.rows + COORDINATES,
            "hidden_size": hidden,
            "intermediate_size": ffn,
            "num_hidden_layers": kept,
            "num_attention_heads": heads,
            "num_key_value_heads": groups,
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": model.tied,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6} | model.rope,
        }
        | more,
        vision_config=vision,
        image_token_id=token_id(family.image_token),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id(family.vision_start),
        vision_end_token_id=token_id(family.vision_end),
        tie_word_embeddings=model.tied,
    )
    config.architectures = [f"{CLASSES[model.kind]}ForConditionalGeneration"]
    processor.save_pretrained(folder)
    config.save_pretrained(folder)
    if weights:
        torch.manual_seed(0)
        getattr(transformers, config.architectures[0])(config).to(torch.float32).save_pretrained(folder)
    return folder


def write_images(folder: Path, width: int, height: int, objects: int, count: int = 1) -> Path:
    """Write grey images with equal numbers of boxes; returns the annotations."""
    folder.mkdir()
    rows = []
    for number in range(count):
        Image.new("RGB", (width, height), "grey").save(folder / f"{number}.png")
        boxes = [[0.01 * i, 0.02 * i, 0.01 * i + 0.3, 0.02 * i + 0.4] for i in range(objects)]
        found = [{"desc": "car", "bbox": box} for box in boxes]
        rows.append({"image": f"{number}.png", "width": width, "height": height, "image_id": number, "objects": found})
    (folder / "images.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "images.jsonl"


def plan(base: Path, annotations: Path, words: list[str]) -> dict[str, Any]:
    """Return the figures of a dry run, whose output goes nowhere."""
    import contextlib
    import io

    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.preview import dry_run

    config = load_run_config(None, [*COMMON, f"model.path={base}", f"data.annotations={annotations}", *words])
    with contextlib.redirect_stdout(io.StringIO()):
        return dry_run(config, RANKS)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="keys of MODELS; all of them if there are none")] = None,
    width: int = 1280,
    height: int = 960,
    objects: int = 10,
) -> None:
    """Print a table: parameters, and the memory of a step with LoRA and offsets, and of full training."""
    print(f"| model | parameters | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            base, annotations = write_base(name, folder / "base"), write_images(folder / "data", width, height, objects)
            found = [plan(base, annotations, words) for words in COLUMNS.values()]
        label = name if MODELS[name].assumed is None else f"{name} (assumed: {MODELS[name].assumed})"
        cells = [f"{figures['peak'] / 2**30:.1f} GiB" for figures in found]
        print(f"| {label} | {found[-1]['parameters']['all'] / 1e9:.2f} B | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
