"""Packed rows: what a sample must not see of the one before it; what else a batch has."""

import pytest
import torch

from coord_codec import CoordVocab, find_layout
from coord_trainer.data.batches import collate_samples, pack


def test_first_token_of_a_packed_sample_has_no_label_and_its_bounds_are_stated():
    def sample(length):
        row = torch.arange(length)[None]
        return {"input_ids": row, "labels": row + 1, "position_ids": row.expand(3, 1, -1), "text_position_ids": row}

    packed, starts = pack([sample(2), sample(3)])
    assert starts == [0, 2] and packed["labels"].tolist() == [[-100, 2, -100, 2, 3]]
    assert packed["cu_seq_lens_q"].tolist() == [0, 2, 5] and packed["max_length_q"] == 3


VOCAB = CoordVocab(100)
BOX = [7, 1, 5, 111, 122, 133, 144, 2]


def collated(samples):
    """As swift's collator: padded on the left, with two images of different sizes."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    padded = [[0] * (longest - len(sample["input_ids"])) + sample["input_ids"] for sample in samples]
    ids = torch.tensor(padded)
    mask = torch.tensor([[0] * (longest - len(s["input_ids"])) + [1] * len(s["input_ids"]) for s in samples])
    grids = torch.tensor([sample["grid"] for sample in samples])
    rows = torch.arange(longest)[None]
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": mask, "image_grid_thw": grids,
            "position_ids": rows.expand(3, len(samples), -1), "text_position_ids": rows}  # fmt: skip


@pytest.mark.parametrize("packing", [False, True])
def test_batch_has_objects_names_sources_and_bounds_of_images_and_leaves_samples_alone(packing):
    samples = [
        {"input_ids": ids, "grid": grid, "coord_layout": find_layout(ids, VOCAB, (1, 2)), "coord_geometry": "box",
         "coord_boxes": [[0.11, 0.22, 0.33, 0.44]]}
        for ids, grid in ((BOX, [1, 2, 4]), ([9, 9, *BOX], [1, 4, 4]))
    ]  # fmt: skip
    samples[1] |= {"coord_sample": "b.png", "coord_source": 0}
    before = [dict(sample) for sample in samples]
    batch = collate_samples(samples, collated, VOCAB, packing)
    assert samples == before
    assert batch["coord_samples"] == ["b.png"] and batch["coord_sources"] == [0]
    assert batch["image_cu_seqlens"].tolist() == [0, 8, 24] and batch["image_max_seqlen"] == 16
    predicted = batch["labels"][:, 1:].flatten()
    rows = batch["coord_slots"].rows_M4.flatten()  # among the predictions that have a label
    assert predicted[predicted != -100][rows].tolist() == [111, 122, 133, 144] * 2
    assert not {name for name in batch if name in ("layout", "boxes", "geometry", "objects")}
    assert ("cu_seq_lens_q" in batch) is packing


def test_packed_row_has_each_part_of_its_samples_and_no_other():
    def sample(length, images):
        row = torch.arange(length)[None]
        part = {"input_ids": row + 10, "labels": row, "mm_token_type_ids": row % 2, "attention_mask": row * 0 + 1}
        part |= {"position_ids": torch.stack([row, row + 1, row + 2]), "text_position_ids": row}
        pixels = {"pixel_values": torch.full((2, 3), float(length)), "image_grid_thw": torch.tensor([[1, 2, length]])}
        return part | (pixels if images else {})

    packed, starts = pack([sample(2, True), sample(4, False), sample(3, True)])
    assert starts == [0, 2, 6]
    assert packed["input_ids"].tolist() == [[10, 11, 10, 11, 12, 13, 10, 11, 12]]
    assert packed["mm_token_type_ids"].tolist() == [[0, 1, 0, 1, 0, 1, 0, 1, 0]]
    assert packed["labels"].tolist() == [[-100, 1, -100, 1, 2, 3, -100, 1, 2]]
    assert packed["pixel_values"][:, 0].tolist() == [2, 2, 3, 3] and packed["image_grid_thw"][:, 2].tolist() == [2, 3]
    rows = torch.tensor([0, 1, 0, 1, 2, 3, 0, 1, 2])
    assert torch.equal(packed["position_ids"][:, 0], torch.stack([rows, rows, rows + 1, rows + 2]))
    for side in "qk":
        bounds = packed[f"cu_seq_lens_{side}"]
        assert bounds.tolist() == [0, 2, 6, 9] and bounds.dtype == torch.int32 and packed[f"max_length_{side}"] == 4
    assert "attention_mask" not in packed and "text_position_ids" not in packed
    assert not {"pixel_values", "image_grid_thw"} & pack([sample(2, False)])[0].keys()
