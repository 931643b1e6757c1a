"""Builds a small, complete Qwen3-VL checkpoint with random weights: the model of the first run.

It uses the real classes (`Qwen3VLForConditionalGeneration`, `Qwen3VLProcessor`, `Qwen2Tokenizer`, a chat template in
Qwen's format), so that code which runs on it also runs on a downloaded checkpoint.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from coord_adapter import smooth_rows, smooth_rows_2d
from coord_codec import MARKERS, WILDCARD_TOKEN, CoordGrid, CoordVocab, coord_tokens
from coord_detect.console import say

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer, Qwen3VLForConditionalGeneration, Qwen3VLProcessor

    from coord_data.reading.image_set import ImageSet
    from coord_trainer.config.run_config import RunConfig
    from coord_trainer.config.sections import TinyModelConfig
    from coord_trainer.data.mixture import Mixture


# Qwen3's special tokens that a vision-language sample uses, in Qwen's order.
_SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *MARKERS["qwen"].tokens,
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]

_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

PATCH, MERGE = 16, 2
_INITIAL_STD, _COORDINATE_RMS, _POSITION_RMS = 0.05, 0.1, 0.3
"""Standard deviation of random weights, and root mean squares of smooth rows of coordinates and of patch positions."""


def tiny_without_weights(config: RunConfig, folder: Path, train: ImageSet | Mixture) -> str:
    """Write the built-in checkpoint without weights to `folder`: configuration, tokenizer and processor."""
    processor = build_processor(train_tokenizer(_texts(config, train)), config.model.tiny)
    with torch.device("meta"):
        without_rows = config.model.tiny.model_copy(update={"smooth_rows": False})
        model = _build_model(processor, without_rows)
    processor.save_pretrained(folder)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    return str(folder)


def _texts(config: RunConfig, train: ImageSet | Mixture) -> list[str]:
    from coord_trainer.data.conversations import Conversations
    from coord_trainer.data.mixture import Mixture

    mixture = Mixture.of_one(train, config.data)
    words: set[str] = set()
    prompts = [config.data.prompt]
    for source in mixture.sources:
        if isinstance(source.content, Conversations):
            words.update(source.content.texts)
            continue
        words |= source.content.words
        prompts.append(source.data.prompt)
        if source.data.queries != "all":
            prompts.append(source.data.class_prompt.replace("{classes}", ","))
    return [*dict.fromkeys(prompts), *sorted(words)]


def base_checkpoint(config: RunConfig, folder: Path, train: ImageSet | Mixture) -> str:
    """Return the checkpoint that training starts from: `model.path`, or a tiny model built for the words of `train`."""
    if config.model.path is not None:
        return config.model.path
    base = folder / "base"
    if not base.exists():  # it exists in a resumed run, and for the ranks after the first
        partial = folder / ".base.partial"  # renamed when it is complete
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        processor = build_processor(train_tokenizer(_texts(config, train)), config.model.tiny)
        torch.manual_seed(config.run.seed)
        model = _build_model(processor, config.model.tiny)
        processor.save_pretrained(partial)
        model.save_pretrained(partial)
        partial.rename(base)
        say(f"model: Qwen3-VL built with random weights, {sum(p.numel() for p in model.parameters()):,} parameters")
    return str(base)


def _build_model(processor: Qwen3VLProcessor, config: TinyModelConfig) -> Qwen3VLForConditionalGeneration:
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
            "initializer_range": _INITIAL_STD,
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
            "initializer_range": _INITIAL_STD,
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
        _smooth_start(model, CoordVocab.from_tokenizer(tokenizer), config)
    return model


def _smooth_start(model: Any, vocab: CoordVocab, config: TinyModelConfig) -> None:
    """Give neighbouring bins and patches similar initial rows, which saves about half the training steps."""
    with torch.no_grad():
        tables = [model.get_input_embeddings().weight]
        if not config.tied:
            tables.append(model.get_output_embeddings().weight)
        for table in tables:
            rows = smooth_rows(len(vocab.ids), table.shape[1], _COORDINATE_RMS)
            table[vocab.first_id : vocab.first_id + len(vocab.ids)] = rows
        positions = model.model.visual.pos_embed.weight
        positions.copy_(smooth_rows_2d(config.position_side, positions.shape[1], _POSITION_RMS))


def train_tokenizer(texts: list[str], coordinates: bool = True) -> Qwen2Tokenizer:
    """Train a byte-level BPE in which each word of `texts` is a token; add special and coordinate tokens.

    Without `coordinates` and markers it is like that of a published checkpoint.
    """
    from tokenizers import AddedToken, trainers
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    empty = Qwen2Tokenizer(vocab={}, merges=[])
    bpe = empty.backend_tokenizer
    learn = trainers.BpeTrainer(
        vocab_size=4096, min_frequency=1, initial_alphabet=sorted(ByteLevel.alphabet()), show_progress=False
    )
    bpe.train_from_iterator([*texts, "user assistant system \n"], learn)
    state = json.loads(bpe.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=state["vocab"],
        merges=[tuple(m) for m in state["merges"]],
        eos_token="<|im_end|>",
        extra_special_tokens=_SPECIALS,
    )
    if not coordinates:
        return tokenizer
    # Boxes are part of the answer, not control tokens: decoding with skip_special_tokens must keep them.
    plain = [WILDCARD_TOKEN, *coord_tokens(CoordGrid()), *MARKERS["obj"].tokens]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    return tokenizer


def build_processor(tokenizer: Qwen2Tokenizer, config: TinyModelConfig) -> Qwen3VLProcessor:
    """Return the processor around `tokenizer`, for images between the pixel limits of `config`."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    images = Qwen2VLImageProcessor(
        patch_size=PATCH,
        merge_size=MERGE,
        temporal_patch_size=2,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size={"shortest_edge": config.min_pixels, "longest_edge": config.max_pixels},
    )
    return Qwen3VLProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(patch_size=PATCH),
        chat_template=_CHAT_TEMPLATE,
    )
