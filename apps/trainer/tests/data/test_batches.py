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
