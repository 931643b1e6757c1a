"""The adapter file's format, read from tensors and from what stands for them."""

from dataclasses import dataclass

import pytest
import torch
from safetensors.torch import save_file

from coord_adapter import SavedOffsets, read_offsets
from coord_adapter.format import (
    GUARD_NAME,
    MODULE_NAME,
    WEIGHTS_FILE,
    find_offsets,
    offset_part,
    offset_tensors,
    problem_with_fingerprint,
    problem_with_ids,
)

PREFIX = f"base_model.model.{MODULE_NAME}."


@dataclass(frozen=True)
class Entry:
    """An entry of a header: a shape, and values where they were read."""

    shape: tuple[int, ...]
    values: tuple[int, ...] = ()


def entries(rows=3, head_rows=0, **changed):
    parts = {
        "token_ids": Entry((rows,), tuple(range(7, 7 + rows))),
        "embed_offset": Entry((rows, 8)),
        "head_offset": Entry((head_rows, 8)),
        "fingerprint": Entry((4,), tuple(b"f00d")),
        "format_version": Entry((1,), (1,)),
    } | changed
    named = {PREFIX + part: entry for part, entry in parts.items() if entry is not None}
    return named | {"base_model.model.layer.lora_A.weight": Entry((4, 8))}


def find(**changed):
    return find_offsets(entries(**changed), lambda entry: entry.values, "a file")


def test_constants_are_those_of_saved_files():
    assert MODULE_NAME == "coord_offset_adapter" and GUARD_NAME.endswith("__coord_offset_guard")
    assert WEIGHTS_FILE == "adapter_model.safetensors"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (PREFIX + "embed_offset", "embed_offset"),
        (f"{MODULE_NAME}.token_ids", "token_ids"),
        (f"{MODULE_NAME}.modules_to_save.default.head_offset", "head_offset"),
        (f"not_{MODULE_NAME}.token_ids", None),
        (MODULE_NAME, None),
        ("lm_head.lora_A.weight", None),
    ],
)
def test_offset_part_knows_names_with_and_without_prefix(name, part):
    assert offset_part(name) == part


def test_find_offsets_needs_no_tensors():
    tied, separate = find(), find(head_rows=3)
    assert tied.ids == (7, 8, 9)
    assert tied.embed == Entry((3, 8))
    assert (tied.head, tied.fingerprint, tied.lacking) == (None, "f00d", frozenset())
    assert separate.head == Entry((3, 8))


def test_find_offsets_says_what_a_file_of_another_writer_lacks():
    assert find(fingerprint=None).lacking == {"fingerprint"}
    assert find(fingerprint=None).fingerprint is None
    assert find(fingerprint=Entry((0,))).fingerprint is None
    assert find(format_version=None).lacking == {"format_version"}


def test_find_offsets_is_none_without_offsets():
    assert find_offsets({"layer.lora_A.weight": Entry((4, 8))}, lambda entry: entry.values, "a file") is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"token_ids": None, "head_offset": None}, "a file: the offset tables lack token_ids, head_offset"),
        ({"scale": Entry((1,))}, f"a file: {MODULE_NAME}.scale: .*unknown part"),
        ({"format_version": Entry((1,), (2,))}, "format_version is 2, expected at most 1: update coord-adapter"),
        ({"token_ids": Entry((3,), (7, 8, 7))}, "a file: token_ids: id 7 occurs twice"),
        ({"token_ids": Entry((3,), (7, -1, 9))}, "a file: token_ids: id -1 is outside"),
        ({"embed_offset": Entry((0, 8))}, "0 rows for 3 token ids.*ZeRO-3"),
        ({"embed_offset": Entry((2, 8))}, r"embed_offset is \(2, 8\), expected \(3, 8\)"),
        ({"embed_offset": Entry((0,))}, "0 rows for 3 token ids.*ZeRO-3"),
        ({"embed_offset": Entry((3,))}, r"embed_offset is \(3,\)"),
        ({"head_offset": Entry(())}, r"head_offset is \(\), expected 2 dimension"),
        ({"token_ids": Entry((3, 1), ([7], [8], [9]))}, r"token_ids is \(3, 1\), expected 1 dimension"),
        ({"format_version": Entry((), 1)}, r"format_version is \(\), expected 1 dimension"),
        ({"token_ids": Entry((3,), (7.0, 8.0, 9.0))}, r"token_ids holds 7\.0, expected integers"),
        ({"fingerprint": Entry((2,), (0.5, 1.0))}, r"fingerprint holds 0\.5, expected integers"),
        ({"head_offset": Entry((2, 8))}, r"head_offset is \(2, 8\), expected \(3, 8\), or no rows"),
        ({"head_offset": Entry((3, 7))}, r"head_offset is \(3, 7\)"),
    ],
)
def test_find_offsets_refuses_what_does_not_belong_together(changed, message):
    with pytest.raises(ValueError, match=message):
        find(**changed)


@pytest.mark.parametrize("tied", [True, False])
def test_read_offsets_returns_what_offset_tensors_wrote(tmp_path, tied):
    ids, embed, head = torch.tensor([9, 3, 5]), torch.randn(3, 4), torch.randn(3, 4)
    written = SavedOffsets(ids, embed.bfloat16(), None if tied else head.bfloat16(), "f00d \N{SNOWMAN}")
    save_file(offset_tensors(written), tmp_path / WEIGHTS_FILE)
    read = read_offsets(tmp_path)
    assert read.ids.dtype == torch.int64
    assert torch.equal(read.ids, ids)
    assert torch.equal(read.embed, written.embed)
    assert read.tied is tied
    assert tied or torch.equal(read.head, written.head)
    assert read.fingerprint == "f00d \N{SNOWMAN}"


def test_problem_with_ids_names_the_id_without_a_row():
    assert problem_with_ids([3, 299], 300) is None
    assert problem_with_ids([3, 300], None) is None
    assert problem_with_ids([], 300) is None
    assert "token id 300 lies outside the 300 rows" in problem_with_ids([300, 3], 300)


def test_problem_with_fingerprint_needs_both_sides():
    for saved, expected in (("a", "a"), (None, "a"), ("a", None), ("", "a")):
        assert problem_with_fingerprint(saved, expected) is None
    assert problem_with_fingerprint("f00d-1", "f00d-2") and problem_with_fingerprint("f00d", "f00d-2")
    assert "trained with 'a', this model's tokenizer is 'b'" in problem_with_fingerprint("a", "b")
