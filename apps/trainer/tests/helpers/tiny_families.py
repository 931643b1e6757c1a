"""A tiny random checkpoint of each model family: its real classes around the tokenizer of the tiny Qwen3-VL."""

import json

import torch

from coord_detect.families.registry import FAMILIES
from coord_trainer.model.tiny import build_processor

HIDDEN, HEADS, HEAD_DIM = 32, 2, 16
THOUGHT = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
)
PROMPT_END = "<|im_start|>assistant\n"
SYSTEM = "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GATED_DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
POSITIONS = {"num_position_embeddings": 36}
INTERLEAVED = {"mrope_interleaved": True}
GATED_ROPE = {"mrope_section": [1, 1, 0], "partial_rotary_factor": 0.25} | INTERLEAVED
CLASSES = {
    "qwen3_vl": ("Qwen3VL", {}, POSITIONS | {"deepstack_visual_indexes": [0]}, INTERLEAVED),
    "qwen3_vl_moe": ("Qwen3VLMoe", EXPERTS, POSITIONS | {"deepstack_visual_indexes": [0]}, INTERLEAVED),
    "qwen3_5": ("Qwen3_5", GATED_DELTA, POSITIONS, GATED_ROPE),
    "qwen3_5_moe": (
        "Qwen3_5Moe",
        GATED_DELTA | EXPERTS | {"shared_expert_intermediate_size": 16},
        POSITIONS,
        GATED_ROPE,
    ),
    "qwen2_5_vl": ("Qwen2_5_VL", {}, {"fullatt_block_indexes": [1], "window_size": 56}, {}),
    "qwen2_vl": ("Qwen2VL", {}, {"embed_dim": HIDDEN, "mlp_ratio": 2}, {}),
}
"""Prefix of the classes in transformers, settings of the text, of the vision tower, and of the positions."""


def chat_template(kind, template):
    """The chat template of a family in the form that is published: with a system turn, or a thought."""
    if FAMILIES[kind].empty_thought:
        return template.replace(PROMPT_END, PROMPT_END + THOUGHT)
    return SYSTEM + template if FAMILIES[kind].system else template


INTERNVL_TOKENS = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
TILE = 56


def write(model, processor, out):
    tokenizer = processor.tokenizer
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    processor.save_pretrained(out)
    model.save_pretrained(out)
    return model


def build_internvl(tokenizer, sizes, out):
    """Write a tiny InternVL3 to `out`: images are cut into up to four tiles, and shown whole in a last one."""
    import transformers

    chat_template = build_processor(tokenizer, sizes).chat_template
    tokenizer.save_pretrained(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        out, extra_special_tokens=INTERNVL_TOKENS | {"video_token": "<video>"}
    )
    tokens = TILE**2 // 28**2
    processor = transformers.InternVLProcessor(
        transformers.GotOcr2ImageProcessor(size={"height": TILE, "width": TILE}, max_patches=4, crop_to_patches=True),
        tokenizer,
        transformers.InternVLVideoProcessor(size={"height": TILE, "width": TILE}),
        image_seq_length=tokens,
        chat_template=chat_template.replace("<|vision_start|><|image_pad|><|vision_end|>", "<IMG_CONTEXT>\n"),
    )
    layers = {"hidden_size": HIDDEN, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    config = transformers.InternVLConfig(
        text_config=layers
        | {
            "model_type": "qwen2",
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "num_key_value_heads": HEADS,
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": True,
        },
        vision_config=layers | {"image_size": [TILE, TILE], "patch_size": [14, 14]},
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=tokens,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return write(transformers.InternVLForConditionalGeneration(config).to(torch.float32), processor, out)


GEMMA_TEMPLATE = (
    "{{ bos_token }}{% set first = '' %}{% if messages[0].role == 'system' %}"
    "{% set said = messages[0].content %}{% set first = (said if said is string else said[0].text) + '\n\n' %}"
    "{% set messages = messages[1:] %}{% endif %}"
    "{% for message in messages %}<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ first if loop.first else '' }}{% if message.content is string %}{{ message.content | trim }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<start_of_image>{% else %}{{ part.text | trim }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
GEMMA_TOKENS = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
SQUARE = 112
"""Side of an image of the tiny Gemma 3: four tokens."""


def gemma_tokenizer(like):
    """A BPE over characters with ▁ for a space, and runs of line breaks, which writes the words that `like` knows."""
    from tokenizers import AddedToken, Regex, pre_tokenizers, trainers
    from transformers import GemmaTokenizer

    added = sorted(like.added_tokens_decoder.items())
    known = sorted(set(like.get_vocab()) - set(like.get_added_vocab()))
    words = [like.convert_tokens_to_string([token]) for token in known]
    bpe = GemmaTokenizer().backend_tokenizer
    bpe.pre_tokenizer = pre_tokenizers.Split(Regex("▁?[^▁\n]+|\n+"), "isolated")
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    learn = trainers.BpeTrainer(vocab_size=4096, min_frequency=1, special_tokens=first, show_progress=False)
    bpe.train_from_iterator([*words, "\n\n\n"], learn)
    state = json.loads(bpe.to_str())["model"]
    tokenizer = GemmaTokenizer(
        vocab=state["vocab"],
        merges=[tuple(pair) for pair in state["merges"]],
        extra_special_tokens=GEMMA_TOKENS,
        add_bos_token=True,
    )
    turns = [AddedToken(turn, special=True, normalized=False) for turn in ("<start_of_turn>", "<end_of_turn>")]
    tokenizer.add_tokens([*turns, *(token for _, token in added if not token.special)])
    return tokenizer


def build_gemma(tokenizer, sizes, out):
    """Write a tiny Gemma 3 to `out`: squares of `SQUARE` pixels, sliding and full attention, scaled embeddings."""
    import transformers

    tokenizer = gemma_tokenizer(tokenizer)
    size = {"height": SQUARE, "width": SQUARE}
    tokens = (SQUARE // 14 // FAMILIES["gemma3"].merge_size) ** 2
    images = transformers.Gemma3ImageProcessor(size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    processor = transformers.Gemma3Processor(images, tokenizer, GEMMA_TEMPLATE, image_seq_length=tokens)
    layers = {"hidden_size": HIDDEN, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    config = transformers.Gemma3Config(
        text_config=layers
        | {
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "num_key_value_heads": HEADS,
            "head_dim": HEAD_DIM,
            "query_pre_attn_scalar": HEAD_DIM,
            "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention"],
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config=layers | {"image_size": SQUARE, "patch_size": 14, "vision_use_head": False},
        mm_tokens_per_image=tokens,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = transformers.Gemma3ForConditionalGeneration(config).to(torch.float32)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight, std=0.02)  # zeros, as built
    write(model, processor, out)
    # As published: an answer may end with the end of a turn as well as with that of a text.
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<end_of_turn>")]
    model.generation_config.save_pretrained(out)
    return model


OTHERS = {"internvl": build_internvl, "gemma3": build_gemma}


def build(kind, tokenizer, sizes, out):
    """Write the checkpoint of a family to `out`; `sizes` are the limits of its images."""
    import transformers

    if kind in OTHERS:
        return OTHERS[kind](tokenizer, sizes, out)
    family = FAMILIES[kind]
    prefix, text, vision, rope = CLASSES[kind]
    processor = build_processor(tokenizer, sizes)
    processor.chat_template = chat_template(kind, processor.chat_template)
    processor.image_processor.patch_size = family.patch_size
    processor.image_processor.merge_size = family.merge_size
    if family.patch_size == 14:
        named = transformers.Qwen2_5_VLProcessor if kind == "qwen2_5_vl" else transformers.Qwen2VLProcessor
        processor = named(
            image_processor=processor.image_processor,
            tokenizer=tokenizer,
            video_processor=transformers.Qwen2VLVideoProcessor(patch_size=14),
            chat_template=processor.chat_template,
        )
    token_id = tokenizer.convert_tokens_to_ids
    config = getattr(transformers, f"{prefix}Config")(
        text_config={
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": HIDDEN,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            **({} if kind.startswith("qwen2") else {"head_dim": HEAD_DIM}),
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]} | rope,
        }
        | text,
        vision_config={
            "depth": 2,
            "num_heads": HEADS,
            "patch_size": family.patch_size,
            "spatial_merge_size": family.merge_size,
            "hidden_size": HIDDEN,
            **({} if kind == "qwen2_vl" else {"intermediate_size": 48, "out_hidden_size": HIDDEN}),
        }
        | vision,
        image_token_id=token_id(family.image_token),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id(family.vision_start),
        vision_end_token_id=token_id(family.vision_end),
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return write(getattr(transformers, f"{prefix}ForConditionalGeneration")(config).to(torch.float32), processor, out)
