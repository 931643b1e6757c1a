"""The tiny Qwen3-VL of these tests; random weights, nothing zero where a zero could hide a bug."""

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

V, H = 300, 64
# Neither sorted nor contiguous: a table in the order given must not rely on either.
IDS = [*range(279, 239, -1), 5, 290, 17]
OTHERS = [i for i in range(V) if i not in IDS]
TEXT_LAYERS = r".*language_model.*\.(q_proj|v_proj)"


def tiny(tied=True, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    text = {
        "vocab_size": V, "hidden_size": H, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
        "tie_word_embeddings": tied, "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": None,
        "pad_token_id": None,
    }  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": H,
        "patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
    }  # fmt: skip
    config = Qwen3VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=tied,
        image_token_id=V - 4, video_token_id=V - 3, vision_start_token_id=V - 2, vision_end_token_id=V - 1,
    )  # fmt: skip
    return Qwen3VLForConditionalGeneration(config).to(dtype).eval()


def batch(seed=1, rows=2, length=24):
    """Random ids of both kinds (placeholders of images excluded)."""
    ids_BT = torch.randint(0, V - 4, (rows, length), generator=torch.Generator().manual_seed(seed))
    ids_BT[:, ::3] = torch.tensor(IDS)[ids_BT[:, ::3] % len(IDS)]
    return {"input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT)}
