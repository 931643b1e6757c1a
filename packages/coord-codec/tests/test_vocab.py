"""CoordVocab and MarkerFamily: ids from a tokenizer, and clear words for one that does not fit."""

import pytest

from coord_codec import MARKERS, WILDCARD_TOKEN, CoordGrid, CoordVocab, MarkerFamily, coord_tokens

np = pytest.importorskip("numpy", reason="masks of NumPy arrays")
WORDS = ["<unk>", "cat", "dog", "<", "|", "coord", "_", "1", ">"]


def make_tokenizer(added=(), base=()):
    """A word-level Hugging Face tokenizer: WORDS and `base` in its table, `added` as added tokens."""
    transformers = pytest.importorskip("transformers", reason="Hugging Face tokenizers")
    tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face tokenizers")
    entries = {word: i for i, word in enumerate([*WORDS, *base])}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(entries, unk_token="<unk>"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Punctuation()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
    tokenizer.add_tokens(list(added))
    return tokenizer


def test_reads_ids_in_order():
    vocab = CoordVocab.from_tokenizer(make_tokenizer([WILDCARD_TOKEN, *coord_tokens()]))
    assert vocab == CoordVocab(first_id=len(WORDS) + 1)  # the wildcard comes first and is left out
    assert vocab.ids == range(len(WORDS) + 1, len(WORDS) + 1001)
    assert [vocab.bin_to_id(k) for k in (0, 999)] == [vocab.first_id, vocab.first_id + 999]
    assert [vocab.id_to_bin(i) for i in vocab.ids] == list(range(1000))


def test_a_processor_stands_for_its_tokenizer():
    class Processor:
        tokenizer = make_tokenizer(coord_tokens())

    assert CoordVocab.from_tokenizer(Processor()).first_id == len(WORDS)


def test_a_tokenizer_of_the_tokenizers_library_does_too():
    tokenizer = make_tokenizer(coord_tokens())
    assert CoordVocab.from_tokenizer(tokenizer.backend_tokenizer) == CoordVocab.from_tokenizer(tokenizer)


def test_a_name_is_no_tokenizer():
    with pytest.raises(ValueError, match=r"expected a tokenizer, found 'Qwen'; AutoTokenizer\.from_pretrained"):
        CoordVocab.from_tokenizer("Qwen")


def test_another_grid():
    grid = CoordGrid(16, 16)
    vocab = CoordVocab.from_tokenizer(make_tokenizer(coord_tokens(grid)), grid)
    assert len(vocab.ids) == 16 and vocab.grid == grid


TOKENS = coord_tokens()


@pytest.mark.parametrize(
    ("tokens", "fault"),
    [
        (TOKENS[:37] + TOKENS[38:], r"lacks 1 of 1000 coordinate tokens: <\|coord_37\|>; .*add_tokens"),
        ([], r"lacks 1000 of 1000 .*<\|coord_0\|>, .*, \.\.\.; .*'<\|coord_\*\|>', \*coord_"),
        (
            [*TOKENS[:500], "<|intruder|>", *TOKENS[500:]],
            r"a gap: <\|coord_500\|> has id 510, expected 509 .*add_tokens",
        ),
        (sorted(TOKENS, key=lambda token: token[:-2]), r"out of order: <\|coord_2\|> has id .*, expected"),
        (TOKENS[::-1], "out of order"),
        ([TOKENS[1], TOKENS[0], "<|intruder|>", *TOKENS[2:]], "a gap"),
    ],
    ids=["one is missing", "all are missing", "a gap", "in alphabetical order", "in reversed order", "both"],
)
def test_tokenizer_whose_ids_are_not_consecutive_is_refused(tokens, fault):
    with pytest.raises(ValueError, match=fault):
        CoordVocab.from_tokenizer(make_tokenizer(tokens))


def test_split_token_is_named():
    """An entry of the table that the pre-tokenizer tears apart before it could be looked up."""
    tokens = coord_tokens()
    tokenizer = make_tokenizer(tokens[2:], base=tokens[:2])
    tokenizer.add_tokens(tokens[:1])  # the first keeps its id and is whole again; the second is left split
    with pytest.raises(ValueError, match=r"coordinate token <\|coord_1\|> has id 10 but its text is encoded"):
        CoordVocab.from_tokenizer(tokenizer)


def test_marker_ids_and_their_absence():
    tokenizer = make_tokenizer(MARKERS["obj"].tokens)
    assert MARKERS["obj"].ids(tokenizer) == (len(WORDS), len(WORDS) + 1)
    with pytest.raises(ValueError, match=r"lacks 4 of 4 marker tokens: <\|object_ref_start\|>.*'qwen'"):
        MARKERS["qwen"].ids(tokenizer)
    with pytest.raises(ValueError, match=r"marker token <obj_start> .* encoded as"):
        MARKERS["obj"].ids(make_tokenizer(base=MARKERS["obj"].tokens))


def test_the_families():
    assert MARKERS["obj"].tokens == ("<obj_start>", "<obj_end>")
    assert MARKERS["qwen"].tokens == (
        "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    )  # fmt: skip
    with pytest.raises(TypeError):
        MARKERS["mine"] = MARKERS["obj"]
    for tokens in (("<a>", "<b>", "<c>"), ("<a>", "<a>"), ("<a>", "<b>", "<c>", "<a>"), ()):
        with pytest.raises(ValueError, match="2 or 4 different tokens"):
            MarkerFamily("mine", tokens)


def test_mask_keeps_the_kind():
    torch = pytest.importorskip("torch", reason="masks of tensors")
    vocab = CoordVocab(100)
    ids = [[-100, 99, 100], [1099, 1100, 5]]
    expected = [[False, False, True], [True, False, False]]
    assert vocab.mask(ids) == expected and vocab.mask(ids[0]) == expected[0] and vocab.mask([]) == []
    array, tensor = vocab.mask(np.array(ids)), vocab.mask(torch.tensor(ids))
    assert isinstance(array, np.ndarray) and array.dtype == bool and array.tolist() == expected
    assert tensor.dtype == torch.bool and tensor.tolist() == expected


def test_id_to_bin_of_arrays_and_strangers():
    torch = pytest.importorskip("torch", reason="tensors of ids")
    vocab = CoordVocab(100)
    assert vocab.id_to_bin(np.array([[100], [1099]])).tolist() == [[0], [999]]
    assert vocab.id_to_bin(torch.tensor([100, 1099])).tolist() == [0, 999]
    for stranger in (99, 1100, -100, np.array([100, 99]), torch.tensor([[100, 1100]])):
        with pytest.raises(ValueError, match=r"token id (99|1100|-100) is not a coordinate: expected 100\.\.1099"):
            vocab.id_to_bin(stranger)
    for k in (-1, 1000):
        with pytest.raises(ValueError, match="bin"):
            vocab.bin_to_id(k)


@pytest.mark.parametrize("bad", [-1, 1.0, True, None])
def test_first_id_is_an_id(bad):
    with pytest.raises(ValueError, match=r"CoordVocab\.first_id"):
        CoordVocab(bad)


def test_fingerprint_changes_with_everything_it_stands_for():
    vocab = CoordVocab(100)
    digests = [
        vocab.fingerprint(),
        CoordVocab(101).fingerprint(),
        CoordVocab(100, CoordGrid(1000, 999)).fingerprint(),
        CoordVocab(100, CoordGrid(999, 1000)).fingerprint(),
        vocab.fingerprint("obj"),
        vocab.fingerprint("qwen"),
        vocab.fingerprint([1, 2]),
        vocab.fingerprint([1, 3]),
        vocab.fingerprint({"<obj_start>": 1, "<obj_end>": 2}),
        vocab.fingerprint({"<obj_start>": 1, "<obj_end>": 3}),
    ]
    assert len(set(digests)) == len(digests)
    assert all(len(d) == 16 and set(d) <= set("0123456789abcdef") for d in digests)
    assert vocab.fingerprint("obj") == vocab.fingerprint(MARKERS["obj"]) == vocab.fingerprint(MARKERS["obj"].tokens)
    with pytest.raises(ValueError, match="markers"):
        vocab.fingerprint("none such")


def test_fingerprint_is_the_same_in_every_process_and_release():
    assert CoordVocab(151670).fingerprint("qwen") == "5bf4e098cbc526ba"
