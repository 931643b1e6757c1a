"""Tokenizer, processor and chat template of the built-in tiny model, in Qwen3-VL's own classes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from coord_codec import MARKERS, WILDCARD_TOKEN, CoordGrid, coord_tokens

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer, Qwen3VLProcessor

    from .config_sections import TinyModelConfig

# Qwen3's specials that a vision-language sample uses, in Qwen's order.
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


def train_tokenizer(texts: list[str], grid: CoordGrid) -> Qwen2Tokenizer:
    """A byte-level BPE that knows the words of `texts` whole, with special, coordinate and marker tokens."""
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
    # Boxes are part of the answer, not control tokens: decoding with skip_special_tokens must keep them.
    plain = [WILDCARD_TOKEN, *coord_tokens(grid), *MARKERS["obj"].tokens]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    return tokenizer


def build_processor(tokenizer: Qwen2Tokenizer, config: TinyModelConfig) -> Qwen3VLProcessor:
    """The processor around `tokenizer`, for pictures between the pixel limits of `config`."""
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
