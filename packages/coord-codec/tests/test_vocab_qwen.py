"""The real Qwen vocabulary: the specification's ids, and every text encoded, decoded and parsed again."""

import importlib.util
from pathlib import Path

import pytest

from coord_codec import MARKERS, WILDCARD_TOKEN, CoordVocab, Instance, coord_tokens, encode_target, find_layout

PATTERN = (  # Qwen2's own split of text into words, digits one by one
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN3_SPECIALS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>",
    "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>",
    "</tool_response>", "<think>", "</think>",
]  # fmt: skip
DESCS = ["red car", "猫 on a sofa", 'sign "STOP", 2nd', "person (1,2),(3,4)", " spaced ", "naïve 🦒"]
BOXES = [[0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], [0.0126, 0.5, 0.75, 0.99], [0.2, 0.1, 0.21, 0.11], [0.3, 0.3, 0.9, 0.4]]
INSTANCE = Instance(
    image="a.jpg", objects=[{"desc": d, "bbox": b} for d, b in zip(DESCS, [*BOXES, BOXES[0]], strict=True)]
)
BINS = [tuple(min(round(c * 1000), 999) for c in o.bbox) for o in INSTANCE.objects]


@pytest.fixture(scope="module")
def qwen3():
    """Qwen3's tokenizer, 151,669 entries, extended by the wildcard, the coordinates and the two markers."""
    transformers = pytest.importorskip("transformers", reason="Hugging Face tokenizers")
    converter = pytest.importorskip("transformers.convert_slow_tokenizer", reason="reads tiktoken files")
    pytest.importorskip("tiktoken", reason="reads tiktoken files")
    spec = importlib.util.find_spec("dashscope")
    if spec is None:
        pytest.skip("dashscope is not installed: it brings Qwen's vocabulary")
    file = Path(spec.origin).parent / "resources" / "qwen.tiktoken"
    convert = converter.TikTokenConverter(str(file), pattern=PATTERN, extra_special_tokens=QWEN3_SPECIALS)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=convert.converted())
    assert len(tokenizer) == 151_669
    tokenizer.add_tokens([WILDCARD_TOKEN, *coord_tokens()])
    tokenizer.add_tokens(list(MARKERS["obj"].tokens))
    return tokenizer


@pytest.mark.slow
def test_the_specifications_ids(qwen3):
    assert qwen3.convert_tokens_to_ids("<|endoftext|>") == 151_643
    assert qwen3.convert_tokens_to_ids("</think>") == 151_668
    assert qwen3.convert_tokens_to_ids(WILDCARD_TOKEN) == 151_669
    vocab = CoordVocab.from_tokenizer(qwen3)
    assert vocab == CoordVocab(151_670) and vocab.ids == range(151_670, 152_670)
    assert [qwen3.convert_ids_to_tokens(vocab.bin_to_id(k)) for k in (0, 7, 999)] == [
        "<|coord_0|>", "<|coord_7|>", "<|coord_999|>",
    ]  # fmt: skip
    assert MARKERS["qwen"].ids(qwen3) == (151_646, 151_647, 151_648, 151_649)
    assert MARKERS["obj"].ids(qwen3) == (152_670, 152_671)


@pytest.mark.slow
@pytest.mark.parametrize("markers", MARKERS)
def test_marked_text_survives_the_tokenizer(qwen3, markers):
    vocab, marker_ids = CoordVocab.from_tokenizer(qwen3), MARKERS[markers].ids(qwen3)
    text = encode_target(INSTANCE, markers=markers, order="given")
    ids = qwen3.encode(text, add_special_tokens=False)
    assert qwen3.decode(ids) == text
    layout = find_layout(ids, vocab, marker_ids)
    assert [o.bins for o in layout.objects] == BINS
    assert [qwen3.decode([ids[p] for p in o.desc_positions]) for o in layout.objects] == DESCS
    assert {ids[p] for p in layout.structure_positions} == set(marker_ids)
    assert layout.reasons == ()


@pytest.mark.slow
def test_json_text_survives_the_tokenizer(qwen3):
    vocab = CoordVocab.from_tokenizer(qwen3)
    text = encode_target(INSTANCE, style="json", order="given")
    ids = qwen3.encode(text, add_special_tokens=False)
    assert qwen3.decode(ids) == text
    layout = find_layout(ids, vocab)
    assert [o.bins for o in layout.objects] == BINS and layout.reasons == ()
    # JSON with quoted coordinates, another writer's habit, has one separator as well.
    quoted = qwen3.encode(text.replace("<|coord_", '"<|coord_').replace("|>", '|>"'), add_special_tokens=False)
    assert [o.bins for o in find_layout(quoted, vocab).objects] == BINS


@pytest.mark.slow
def test_numbers_are_plain_text(qwen3):
    ids = qwen3.encode(encode_target(INSTANCE, form="numbers"), add_special_tokens=False)
    assert not any(CoordVocab.from_tokenizer(qwen3).mask(ids))
