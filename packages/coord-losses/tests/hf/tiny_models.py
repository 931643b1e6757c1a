"""Tiny causal models, and eight samples of different lengths and numbers of objects."""

from types import SimpleNamespace

import torch

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig
from coord_losses.hf import CoordCollator

VOCAB = CoordVocab(first_id=30, grid=CoordGrid(bins=20, scale=20))
START, END = 1, 2
SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
CONFIG = ObjectiveConfig.soft(box_weight=1.0, coord_ce_weight=0.5)


def objective(config=CONFIG):
    return CoordObjective(config, VOCAB)


def collator(**options):
    return CoordCollator(SimpleNamespace(pad_token_id=0), markers=(START, END), vocab=VOCAB, **options)


def model(name, **changes):
    import transformers

    torch.manual_seed(0)
    if name in ("Qwen3VL", "Qwen3VLMoe"):
        text = SIZES | {
            "head_dim": 8,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
        }
        vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
        vision |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}
        if name == "Qwen3VLMoe":
            text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
        config = getattr(transformers, f"{name}Config")(
            text_config=text,
            vision_config=vision,
            image_token_id=55,
            video_token_id=56,
            vision_start_token_id=57,
            vision_end_token_id=58,
        )
        return getattr(transformers, f"{name}ForConditionalGeneration")(config)
    if name == "MuseGlimmer":
        vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = transformers.MuseGlimmerConfig(
            text_config=SIZES | {"head_dim": 8, "bos_token_id": 5, "eos_token_id": 6, **changes},
            vision_config=vision,
            out_hidden_size=64,
            projector_hidden_size=16,
            image_token_id=55,
            video_token_id=56,
        )
        return transformers.MuseGlimmerForConditionalGeneration(config)
    if name == "Chameleon":
        # As in its checkpoints: names of the codebook's entries, in letters for digits, beside the placeholder.
        words = {"<image>": 58} | {f"IMGIMG{letter}Z": 50 + i for i, letter in enumerate("ABCD")}
        images = {"num_embeddings": 4, "embed_dim": 8, "latent_channels": 8, "base_channels": 32, "resolution": 16}
        images |= {"channel_multiplier": [1], "num_res_blocks": 1}
        config = transformers.ChameleonConfig(**SIZES, vocabulary_map=words, vq_config=images)
        return transformers.ChameleonForConditionalGeneration(config)
    if name == "PaliGemma":
        text = transformers.Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=3.0)
        vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = transformers.PaliGemmaConfig(
            text_config=text,
            vision_config=transformers.SiglipVisionConfig(**vision, image_size=28, patch_size=14),
            image_token_id=55,
            projection_dim=16,
        )
        return transformers.PaliGemmaForConditionalGeneration(config)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **changes})
    return getattr(transformers, f"{name}ForCausalLM")(config)


def samples(count=8):
    rng = torch.Generator().manual_seed(1)
    found = []
    for n in range(count):
        ids, boxes = [7, 8, 9], []
        for _ in range(n % 4):
            low, size = torch.rand(2, generator=rng) * 0.5, 0.1 + torch.rand(2, generator=rng) * 0.3
            box = [*low.tolist(), *(low + size).tolist()]
            ids += [START, 10 + n, *(VOCAB.bin_to_id(VOCAB.grid.quantize(side)) for side in box), END]
            boxes.append(box)
        found.append({"input_ids": ids, "labels": [-100, -100, *ids[2:]], "boxes": boxes})
    return found
