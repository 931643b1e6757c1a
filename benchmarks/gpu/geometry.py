"""Builds a Qwen3-VL of a given size with random weights, and batches of images and boxes for it."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from coord_codec import CoordVocab, find_layout
from coord_losses import ObjectSlots

PATCH, MERGE = 16, 2
MARKERS = (2, 3, 4, 5)
END, PAD = 6, 0
IMAGE, VIDEO, VISION_START, VISION_END = 7, 8, 9, 10
WORDS = 11
"""The first id of a word; lower ids are control tokens."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of a Qwen3-VL; the coordinate tokens are the last thousand ids."""

    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vision_hidden: int
    vision_layers: int
    vision_heads: int
    deepstack: tuple[int, ...]

    @property
    def vocab(self) -> CoordVocab:
        return CoordVocab(self.vocab_size - 1000)


QWEN3_VL_2B = Geometry(152_704, 2048, 28, 16, 8, 128, 6144, 1024, 24, 16, (5, 11, 17))
MILLIONS_30 = Geometry(1_060, 512, 5, 8, 8, 64, 1536, 384, 4, 6, (1,))
TINY = Geometry(1_060, 64, 2, 4, 2, 16, 96, 32, 1, 2, (0,))


def build(
    geometry: Geometry, device: str, dtype: torch.dtype, attention: str = "sdpa", std: float = 0.02
) -> Qwen3VLForConditionalGeneration:
    """Build the model with tied embeddings and head, its weights drawn on the device."""
    half = geometry.head_dim // 2
    third = half // 3
    text = {
        "vocab_size": geometry.vocab_size,
        "hidden_size": geometry.hidden,
        "intermediate_size": geometry.ffn,
        "num_hidden_layers": geometry.layers,
        "num_attention_heads": geometry.heads,
        "num_key_value_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        "max_position_embeddings": 32_768,
        "initializer_range": std,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5e6,
            "mrope_section": [half - 2 * third, third, third],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": geometry.vision_layers,
        "hidden_size": geometry.vision_hidden,
        "intermediate_size": 4 * geometry.vision_hidden,
        "num_heads": geometry.vision_heads,
        "out_hidden_size": geometry.hidden,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "num_position_embeddings": 48 * 48,
        "deepstack_visual_indexes": list(geometry.deepstack),
        "initializer_range": std,
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=True,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3VLForConditionalGeneration._from_config(config, dtype=dtype, attn_implementation=attention)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = END, PAD
    return model


def image_inputs(samples: int, side: int, device: str) -> dict[str, Tensor]:
    """Return the patches of square noise images, `side` pixels wide."""
    across = side // PATCH
    grid = torch.tensor([[1, across, across]] * samples, device=device)
    patches = torch.randn(samples * across * across, 3 * 2 * PATCH * PATCH, device=device)
    return {"pixel_values": patches, "image_grid_thw": grid}


def prompt(side: int, words: int = 16) -> list[int]:
    """Return the ids of a prompt of one image and `words` words."""
    image = [IMAGE] * (side // PATCH // MERGE) ** 2
    return [VISION_START, *image, VISION_END, *range(WORDS, WORDS + words)]


def answer(boxes_M4: Tensor, names: list[list[int]], vocab: CoordVocab) -> list[int]:
    """Return target ids with Qwen's markers: a description and four coordinates for each object."""
    ref_start, ref_end, box_start, box_end = MARKERS
    ids = []
    for box, name in zip(boxes_M4.tolist(), names, strict=True):
        coords = [vocab.ids[vocab.grid.quantize(side)] for side in box]
        ids += [ref_start, *name, ref_end, box_start, *coords, box_end]
    return [*ids, END]


def packed_batch(
    samples: int, objects: int, side: int, vocab: CoordVocab, device: str
) -> tuple[dict[str, Tensor | int], Tensor, ObjectSlots]:
    """Return samples packed into one row: the model's inputs, labels [1, T] and the objects.

    Positions count all tokens, also those of images, and restart at each sample, which separates them for transformers.
    """
    rng = torch.Generator().manual_seed(0)
    ids, labels, positions, starts, layouts, boxes = [], [], [], [], [], []
    for _ in range(samples):
        corners = torch.rand(objects, 2, 2, generator=rng)
        boxes_M4 = torch.cat([corners.amin(1), corners.amax(1)], dim=1)
        target = answer(boxes_M4, [[WORDS, WORDS + 1]] * objects, vocab)
        sample = [*prompt(side), *target]
        starts.append(len(ids))
        ids += sample
        labels += [-100] * (len(sample) - len(target)) + target
        positions += range(len(sample))
        layouts.append(find_layout(labels[starts[-1] :], vocab, markers=MARKERS))
        boxes.append(boxes_M4.tolist())
    labels_1T = torch.tensor([labels])
    slots = ObjectSlots.from_layouts(layouts, labels_1T, boxes, vocab, batch_rows=[0] * samples, starts=starts)
    ids_1T = torch.tensor([ids], device=device)
    inputs = {
        "input_ids": ids_1T,
        "mm_token_type_ids": (ids_1T == IMAGE).int(),
        "position_ids": torch.tensor(positions, device=device).expand(4, 1, -1),
        **image_inputs(samples, side, device),
    }
    patches = (side // PATCH) ** 2
    text = torch.tensor([*starts, len(ids)], dtype=torch.int32, device=device)
    image = torch.arange(0, (samples + 1) * patches, patches, dtype=torch.int32, device=device)
    longest = int(text.diff().max())
    inputs |= {"cu_seq_lens_q": text, "cu_seq_lens_k": text, "max_length_q": longest, "max_length_k": longest}
    inputs |= {"image_cu_seqlens": image, "image_max_seqlen": patches}
    return inputs, labels_1T.to(device), slots.to(device)
