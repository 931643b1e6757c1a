"""A Qwen3-VL of width 32 in memory, with a byte-level tokenizer that knows all tokens of answers, and its processor."""

from functools import cache

import torch
from tokenizers import AddedToken
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from coord_codec import MARKERS, CoordVocab, coord_tokens
from coord_detect.model.checkpoint import LoadedCheckpoint

VISION = ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer():
    vocab = {token: i for i, token in enumerate(sorted(ByteLevel.alphabet()))}
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *VISION]
    made = Qwen2Tokenizer(vocab=vocab, merges=[], eos_token="<|im_end|>", extra_special_tokens=specials)
    words = [*(token for family in MARKERS.values() for token in family.tokens), *coord_tokens()]
    made.add_tokens([AddedToken(word, special=False, normalized=False) for word in words])
    return made


def tiny_processor():
    images = Qwen2VLImageProcessor(
        patch_size=16, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    )
    return Qwen3VLProcessor(images, tiny_tokenizer(), Qwen3VLVideoProcessor(patch_size=16), chat_template=TEMPLATE)


@cache
def tiny_checkpoint():
    """One for all tests of a process, which do not change it; its answers differ from image to image."""
    processor = tiny_processor()
    token_id = processor.tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    text = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"vocab_size": len(processor.tokenizer), "num_key_value_heads": 2, "head_dim": 8, "rope_parameters": rope}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32}
    vision |= {
        "patch_size": 16,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
        "initializer_range": 0.2,
    }
    names = {"image_token_id": VISION[3], "video_token_id": VISION[4], "vision_start_token_id": VISION[0]}
    names |= {"vision_end_token_id": VISION[1]}
    torch.manual_seed(0)
    config = Qwen3VLConfig(
        text_config=text | {"max_position_embeddings": 512, "initializer_range": 0.2},
        vision_config=vision,
        **{name: token_id(token) for name, token in names.items()},
    )
    model = Qwen3VLForConditionalGeneration(config).eval()
    return LoadedCheckpoint(model, processor, CoordVocab.from_tokenizer(processor.tokenizer), "be brief")
