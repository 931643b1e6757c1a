"""A small, complete Qwen3-VL checkpoint with random weights: the first run's model, made in a second.

Real classes throughout (`Qwen3VLForConditionalGeneration`, `Qwen3VLProcessor`, `Qwen2Tokenizer`, a chat
template in Qwen's format), so whatever runs on it runs on a downloaded checkpoint too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from coord_codec import CoordGrid, CoordVocab

from .console import say
from .errors import InputError
from .row_init import smooth_rows, smooth_rows_2d
from .tiny_processor import MERGE, PATCH, build_processor, train_tokenizer

if TYPE_CHECKING:
    from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

    from .config import RunConfig
    from .config_sections import TinyModelConfig
    from .picture_set import PictureSet


def build_tiny_checkpoint(
    folder: Path, config: TinyModelConfig, texts: Iterable[str], seed: int, grid: CoordGrid = CoordGrid()
) -> int:
    """Write model, tokenizer, processor and chat template to `folder`; returns the number of parameters.

    Args:
        folder: where the checkpoint goes; appears whole, under a temporary name before.
        config: sizes and initial scales.
        texts: prompt and descriptions, from which the byte-level BPE learns whole words.
        seed: of the random weights.
        grid: how many coordinate tokens there are.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    processor = build_processor(train_tokenizer(list(texts), grid), config)
    torch.manual_seed(seed)
    model = _build_model(processor, config, grid)
    processor.save_pretrained(partial)
    model.save_pretrained(partial)
    partial.rename(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def tiny_outline(config: RunConfig, folder: Path, train: PictureSet) -> str:
    """The built-in checkpoint without its weights: configuration, tokenizer and processor in `folder`."""
    processor = build_processor(train_tokenizer(_texts(config, train), CoordGrid()), config.model.tiny)
    with torch.device("meta"):
        without_rows = config.model.tiny.model_copy(update={"smooth_rows": False})
        model = _build_model(processor, without_rows, CoordGrid())
    processor.save_pretrained(folder)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    return str(folder)


def _texts(config: RunConfig, train: PictureSet) -> list[str]:
    words = {found.desc for instance in train.instances for found in instance.objects}
    return [config.data.prompt, *sorted(words)]


def check_model_path(config: RunConfig) -> None:
    """Raise `InputError` when `model.path` is no folder and downloading was not asked for."""
    path = config.model.path
    if path is not None and not Path(path).is_dir() and not config.model.download:
        raise InputError(
            f"model.path: no folder {path!r} here; give a checkpoint's folder, or set model.download: true to "
            "fetch a hub id"
        )


def base_checkpoint(config: RunConfig, folder: Path, train: PictureSet) -> str:
    """Where training starts: `model.path`, or a tiny model built into `folder` for the words of `train`."""
    if config.model.path is not None:
        return config.model.path
    base = folder / "base"
    if not base.exists():  # a run that goes on has it, and so have the ranks after the first
        texts = _texts(config, train)
        parameters = build_tiny_checkpoint(base, config.model.tiny, texts, config.run.seed)
        say(f"model: Qwen3-VL built with random weights, {parameters:,} parameters")
    return str(base)


def _build_model(
    processor: Qwen3VLProcessor, config: TinyModelConfig, grid: CoordGrid
) -> Qwen3VLForConditionalGeneration:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    tokenizer = processor.tokenizer
    token_id = tokenizer.convert_tokens_to_ids
    head_dim = config.hidden // config.heads
    third = head_dim // 2 // 3
    side = config.position_side
    model_config = Qwen3VLConfig(
        text_config={
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": config.hidden,
            "intermediate_size": config.ffn,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.heads,
            "head_dim": head_dim,
            "max_position_embeddings": 4096,
            "initializer_range": config.init_std,
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": config.tied,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [head_dim // 2 - 2 * third, third, third],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": config.vision_layers,
            "hidden_size": config.vision_hidden,
            "intermediate_size": 2 * config.vision_hidden,
            "num_heads": config.heads,
            "out_hidden_size": config.hidden,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "num_position_embeddings": side * side,
            "deepstack_visual_indexes": [0],
            "initializer_range": config.init_std,
        },
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
        tie_word_embeddings=config.tied,
    )
    model = Qwen3VLForConditionalGeneration(model_config).to(torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    if config.smooth_rows:
        _smooth_start(model, CoordVocab.from_tokenizer(tokenizer, grid), config)
    return model


def _smooth_start(model, vocab: CoordVocab, config: TinyModelConfig) -> None:
    """Neighbouring bins and neighbouring patches start as neighbours: worth about twice the steps."""
    with torch.no_grad():
        tables = [model.get_input_embeddings().weight]
        if not config.tied:
            tables.append(model.get_output_embeddings().weight)
        for table in tables:
            rows = smooth_rows(len(vocab.ids), table.shape[1], config.coord_std)
            table[vocab.first_id : vocab.first_id + len(vocab.ids)] = rows
        positions = model.model.visual.pos_embed.weight
        positions.copy_(smooth_rows_2d(config.position_side, positions.shape[1], config.position_std))
