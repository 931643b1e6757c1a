"""Packed rows: what a sample must not see of the one before it."""

import torch

from coord_trainer.data.batches import pack


def test_first_token_of_a_packed_sample_has_no_label_and_its_bounds_are_stated():
    def sample(length):
        row = torch.arange(length)[None]
        return {"input_ids": row, "labels": row + 1, "position_ids": row.expand(3, 1, -1), "text_position_ids": row}

    packed, starts = pack([sample(2), sample(3)])
    assert starts == [0, 2] and packed["labels"].tolist() == [[-100, 2, -100, 2, 3]]
    assert packed["cu_seq_lens_q"].tolist() == [0, 2, 5] and packed["max_length_q"] == 3
