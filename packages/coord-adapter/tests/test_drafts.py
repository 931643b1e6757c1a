"""The file of the draft embeddings."""

import pytest
import torch

from coord_adapter import DRAFTS_FILE, Drafts, InputError, read_drafts, save_drafts


def test_drafts_come_back_as_they_were_saved(tmp_path):
    assert read_drafts(tmp_path) is None
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    save_drafts(tmp_path, Drafts(rows.requires_grad_(), "a vocabulary"))
    found = read_drafts(tmp_path, count=3, hidden_size=8, fingerprint="a vocabulary")
    assert torch.equal(found.rows, rows) and found.fingerprint == "a vocabulary"
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [tmp_path / DRAFTS_FILE]
    assert not list(tmp_path.glob("*.safetensors"))  # vLLM would load them as weights


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"count": 1}, r"rows is \(3, 8\), expected \(1, 8\)"),
        ({"hidden_size": 16}, r"rows is \(3, 8\), expected \(3, 16\)"),
        ({"fingerprint": "another"}, "trained with the vocabulary 'mine', this model has 'another'"),
    ],
)
def test_drafts_of_another_model_are_refused(model, message, tmp_path):
    save_drafts(tmp_path, Drafts(torch.zeros(3, 8), "mine"))
    with pytest.raises(InputError, match=message):
        read_drafts(tmp_path, **model)


def test_damaged_drafts_are_refused(tmp_path):
    save_drafts(tmp_path, Drafts(torch.zeros(3, 8)))
    (tmp_path / DRAFTS_FILE).write_bytes(b"no tensors")
    with pytest.raises(InputError, match="not a readable file of draft embeddings"):
        read_drafts(tmp_path)
