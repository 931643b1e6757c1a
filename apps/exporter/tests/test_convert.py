"""Offsets as PEFT's own rows, and back: read by plain PEFT, and the same adapter again."""

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from tiny_checkpoint import (
    ADAPTER_WEIGHTS,
    edit_json,
    edit_tensors,
    load,
    make_adapter,
    make_base,
    merge_quietly,
    offset_key,
    read_all,
    read_json,
)

from coord_adapter import load_adapter
from coord_exporter import ExportError, InputError, convert, from_peft, to_peft

IDS = torch.arange(300, 350)[None]


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tied", "offsets", "dtype"),
    [(True, "tied", "bfloat16"), (False, "tied", "float32"), (False, "separate", "bfloat16")],
)
def test_plain_peft_reads_what_to_peft_writes_and_from_peft_gives_the_offsets_back(
    bases, tmp_path, tied, offsets, dtype
):
    base = bases(tied, dtype)
    model = make_adapter(tmp_path / "adapter", base, offsets)
    report = to_peft(base, tmp_path / "adapter", tmp_path / "plain")
    assert report.rows == 1000 and report.tables == (1 if tied else 2)
    assert "coord" not in (tmp_path / "plain" / "adapter_config.json").read_text()
    with torch.inference_mode():
        plain = PeftModel.from_pretrained(load(base, torch.float32), tmp_path / "plain")
        expected = load_adapter(load(base, torch.float32), tmp_path / "adapter").eval()(input_ids=IDS).logits
        assert (plain.eval()(input_ids=IDS).logits - expected).abs().max() < (1e-4 if dtype == "float32" else 0.1)

    from_peft(base, tmp_path / "plain", tmp_path / "again")
    again = load_adapter(load(base), tmp_path / "again").eval()
    with torch.inference_mode():
        difference = (again(input_ids=IDS).logits - model(input_ids=IDS).logits).abs().max()
    assert difference < (1e-4 if dtype == "float32" else 0.1)
    # Rows of the base's type have the bits of base plus offset, so both merge to the same checkpoint.
    merge_quietly(base, tmp_path / "adapter", tmp_path / "one")
    for name in ("plain", "again"):
        merge_quietly(base, tmp_path / name, tmp_path / f"{name}-out")
        one, other = read_all(tmp_path / "one"), read_all(tmp_path / f"{name}-out")
        assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    assert read_json(tmp_path / "plain" / "export.json")["history"][0]["verification"]["compared"] >= 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tied", "arguments", "match"),
    [
        (True, {"offsets": "separate"}, "two tables on a base that ties .* Use merge"),
        (False, {"offsets": "tied", "target_modules": ["embed_tokens"]}, "PEFT supports LoRA or trainable_token"),
        (False, {}, "no coordinate offsets; plain PEFT can load this adapter"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_to_peft_refuses_what_peft_cannot_hold(bases, tmp_path, tied, arguments, match):
    make_adapter(tmp_path / "adapter", bases(tied), **arguments)
    with pytest.raises(InputError, match=match):
        to_peft(bases(tied), tmp_path / "adapter", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


@pytest.mark.slow
def test_from_peft_refuses_an_adapter_with_offsets_or_without_rows(bases, adapters, tmp_path):
    with pytest.raises(InputError, match="contains coordinate offsets already"):
        from_peft(bases(False), adapters / "offsets", tmp_path / "out")
    make_adapter(tmp_path / "plain", bases(False))
    with pytest.raises(InputError, match="no trained rows of"):
        from_peft(bases(False), tmp_path / "plain", tmp_path / "out")


@pytest.mark.slow
def test_to_peft_notices_rows_that_are_wrong(bases, tmp_path, monkeypatch):
    make_adapter(tmp_path / "adapter", bases(True), "tied")
    rows = convert._read_rows_of
    monkeypatch.setattr(convert, "_read_rows_of", lambda weight, ids: rows(weight, ids) * 1.01)
    with pytest.raises(ExportError, match="verify: plain PEFT loads other rows"):
        to_peft(bases(True), tmp_path / "adapter", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    spoiled = read_all(tmp_path / "adapter")
    spoiled[offset_key("token_ids")][0] = 99_999
    save_file(spoiled, tmp_path / "adapter" / ADAPTER_WEIGHTS)
    with pytest.raises(InputError, match="id 99999 lies outside"):
        to_peft(bases(True), tmp_path / "adapter", tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("indices", "match"),
    [
        (None, "trainable_token_indices: expected one entry for .*embed_tokens, found 0"),
        ({"embed_tokens": [7]}, r"trainable_tokens_delta is \[2, 64\], expected 1 rows of the base's"),
        ({"embed_tokens": [7, 7]}, "id 7 occurs twice"),
    ],
)
def test_from_peft_refuses_rows_that_do_not_fit_their_ids(bases, tmp_path, indices, match):
    make_adapter(tmp_path / "plain", bases(True), trainable_token_indices={"embed_tokens": [7, 3]})
    edit_json(tmp_path / "plain" / "adapter_config.json", trainable_token_indices=indices)
    with pytest.raises(InputError, match=match):
        from_peft(bases(True), tmp_path / "plain", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_conversions_refuse_a_base_of_another_width(bases, tmp_path):
    make_base(tmp_path / "wide", True, torch.bfloat16, hidden=96)
    make_adapter(tmp_path / "offsets", bases(True), "tied")
    make_adapter(tmp_path / "plain", bases(True), trainable_token_indices={"embed_tokens": [7, 3]})
    for convert_, name in ((to_peft, "offsets"), (from_peft, "plain")):
        with pytest.raises(InputError, match="was the adapter trained on another base"):
            convert_(tmp_path / "wide", tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_to_peft_refuses_an_adapter_whose_offsets_have_no_ids(bases, tmp_path):
    make_adapter(tmp_path / "adapter", bases(True), "tied")

    def empty(tensors):
        tensors[offset_key("token_ids")] = torch.zeros(0, dtype=torch.int64)
        tensors[offset_key("embed_offset")] = torch.zeros(0, 64)

    edit_tensors(tmp_path / "adapter", empty)
    with pytest.raises(InputError, match="no coordinate offsets"):
        to_peft(bases(True), tmp_path / "adapter", tmp_path / "out")
