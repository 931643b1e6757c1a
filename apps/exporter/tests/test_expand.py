"""`expand-vocab`: ids, rows, files, on a tiny vocabulary and on Qwen's own."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tiny_checkpoint import (
    EMBED,
    HEAD,
    coord_vocab,
    edit_json,
    load,
    make_adapter,
    make_base,
    make_tokenizer,
    read_all,
    read_json,
)

from coord_codec import MARKERS, WILDCARD_TOKEN, CoordVocab, coord_tokens
from coord_exporter import ExportError, InputError, expand_vocab, merge
from coord_exporter.checkpoint.read import SafetensorsFile, StoredCheckpoint, TensorInfo
from coord_exporter.expand import NewTokens, _check_rows, check_tokenizer, extend_tokenizer
from coord_exporter.vocabulary import Tables, Vocabulary


def plain_base(folder, tied=False, rows=None, **kwargs):
    return make_base(folder, tied, torch.bfloat16, expanded=False, rows=rows, **kwargs)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """An untied base without coordinate tokens: nothing may change it."""
    return plain_base(tmp_path_factory.mktemp("plain") / "base")


def load_tokenizer(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "tied"), [(320, True), (500, False)])
def test_ids_rows_and_configuration(tmp_path, tied, rows):
    base = plain_base(tmp_path / "base", tied, rows, max_shard_size="60KB")
    old = load_tokenizer(base)
    report = expand_vocab(base, tmp_path / "out", quiet=True)

    new = load_tokenizer(tmp_path / "out")
    assert new.convert_tokens_to_ids(WILDCARD_TOKEN) == len(old)
    assert CoordVocab.from_tokenizer(new).first_id == len(old) + 1 == report.first_coord
    assert {t: i for t, i in new.get_vocab().items() if i < len(old)} == old.get_vocab()
    text = "a<|coord_0|><|coord_999|>b<|im_end|>"
    assert new.decode(new.encode(text), skip_special_tokens=True) == "a<|coord_0|><|coord_999|>b"

    size = len(old) + 1001
    expected = max(rows, -(-size // 64) * 64)
    assert (report.rows_before, report.rows_after, report.added) == (rows, expected, 1001)
    assert report.reused == max(0, min(rows, size) - len(old))
    assert any("no multiple of 64" in warning for warning in report.warnings) == bool(expected % 64)
    config = read_json(tmp_path / "out" / "config.json")
    assert config["text_config"]["vocab_size"] == expected
    assert config["tie_word_embeddings"] is tied

    before, after = read_all(base), read_all(tmp_path / "out")
    assert before.keys() == after.keys() and (HEAD in after) is not tied
    for name, tensor in after.items():
        if name not in (EMBED, HEAD):
            assert torch.equal(tensor, before[name])
            continue
        assert tensor.shape == (expected, 64) and torch.equal(tensor[: len(old)], before[name][: len(old)])
        if expected == rows:  # padding that no token takes stays as it is
            assert torch.equal(tensor[size:], before[name][size:])
        trained = before[name][: len(old)].float()
        fresh = tensor[len(old) : size].float()
        assert (fresh - trained.mean(0)).abs().max() < 6 * 0.1 * trained.std(0).max()
        assert fresh.unique(dim=0).shape[0] == 1001
    model, info = type(load(base)).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    with torch.inference_mode():
        assert model(input_ids=torch.tensor([[5, size - 1]])).logits.shape[-1] == expected


@pytest.mark.slow
def test_mean_rows_have_the_spread_that_is_recorded_and_their_seed_decides(plain, tmp_path):
    for name, seed in (("out", 3), ("again", 3), ("other", 1)):
        expand_vocab(plain, tmp_path / name, seed=seed, quiet=True)
    (entry,) = read_json(tmp_path / "out" / "export.json")["history"]
    assert entry["kind"] == "expand-vocab" and entry["init"] == {"name": "mean", "seed": 3, "noise": 0.1}
    count = len(load_tokenizer(plain))
    trained = read_all(plain)[EMBED][:count].float()
    fresh = read_all(tmp_path / "out")[EMBED][count:].float()
    assert torch.allclose((fresh - trained.mean(0)).std(0), 0.1 * trained.std(0), rtol=0.15)
    one, again, other = (read_all(tmp_path / name)[EMBED] for name in ("out", "again", "other"))
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_smooth_rows_of_neighbouring_bins_are_similar(plain, tmp_path):
    expand_vocab(plain, tmp_path / "out", init="smooth", quiet=True)
    count = len(load_tokenizer(plain))
    similar = torch.nn.functional.cosine_similarity
    for name in (EMBED, HEAD):
        rows = read_all(tmp_path / "out")[name][count + 1 : count + 1001].float()
        waves = rows - read_all(plain)[name][:count].float().mean(0)
        assert similar(waves[500], waves[501], dim=0) > 0.9 > similar(waves[500], waves[700], dim=0)


@pytest.mark.slow
def test_markers_come_last_and_wildcard_can_be_left_out(plain, tmp_path):
    count = len(load_tokenizer(plain))
    expand_vocab(plain, tmp_path / "out", wildcard=False, markers=True, quiet=True)
    tokenizer = load_tokenizer(tmp_path / "out")
    ids = tokenizer.convert_tokens_to_ids(["<|coord_0|>", "<|coord_999|>", "<obj_start>", "<obj_end>"])
    assert ids == [count, count + 999, count + 1000, count + 1001]
    assert WILDCARD_TOKEN not in tokenizer.get_vocab()


@pytest.mark.slow
def test_idempotent(plain, tmp_path):
    expand_vocab(plain, tmp_path / "once", quiet=True)
    report = expand_vocab(tmp_path / "once", tmp_path / "twice", quiet=True)
    assert report.added == 0 and report.rows_before == report.rows_after
    once, twice = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("once", "twice"))
    for name in once:
        if name.endswith(".json"):
            assert json.loads(once[name]) == json.loads(twice[name])
        else:
            assert once[name] == twice[name]
    (tmp_path / "twice" / "export.json").unlink()
    expand_vocab(tmp_path / "twice", tmp_path / "copied", quiet=True)
    assert read_json(tmp_path / "copied" / "export.json")["history"] == []
    report = expand_vocab(tmp_path / "once", tmp_path / "marked", markers=True, quiet=True)
    assert report.added == 2 and report.first_coord == coord_vocab().first_id


def edit_tokenizer(folder, change):
    path = folder / "tokenizer.json"
    content = read_json(path)
    change(content["added_tokens"])
    path.write_text(json.dumps(content))


def token(token_id, content):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": token_id, "content": content} | flags


REFUSALS = {
    "some coordinates": (lambda t, n: [token(n, "<|coord_0|>"), token(n + 1, "<|coord_1|>")], "coord_2|> is missing"),
    "no wildcard": (lambda t, n: [token(n + i, c) for i, c in enumerate(coord_tokens())], "would change their ids"),
    "early wildcard": (lambda t, n: [token(n, WILDCARD_TOKEN), token(n + 1, "<x>")], "other tokens follow it"),
    "out of order": (
        lambda t, n: [token(n + i, c) for i, c in enumerate(reversed(coord_tokens()))],
        "not consecutive and in order",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_would_move_ids_is_refused(tmp_path, name):
    base = plain_base(tmp_path / "base", rows=1500)
    added, match = REFUSALS[name]
    edit_tokenizer(base, lambda tokens: tokens.extend(added(tokens, len(make_tokenizer(expanded=False)))))
    with pytest.raises(InputError, match=match.replace("|", r"\|")):
        expand_vocab(base, tmp_path / "out", quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["base"]


def test_other_refusals(tmp_path):
    base = plain_base(tmp_path / "base")
    config = read_json(base / "config.json")

    def refused(match, edited=None, **options):
        (base / "config.json").write_text(json.dumps(edited or config))
        with pytest.raises(InputError, match=match):
            expand_vocab(base, tmp_path / "out", quiet=True, **options)
        (base / "config.json").write_text(json.dumps(config))

    refused("--init: expected one of mean, smooth, found 'zeros'", init="zeros")
    refused(
        "vocab_size is 999, the embedding has 320",
        config | {"text_config": config["text_config"] | {"vocab_size": 999}},
    )
    free = len(make_tokenizer(expanded=False)) + 4
    refused(f"image_token_id is {free}, an unused id", config | {"image_token_id": free})
    (base / "tokenizer.json").unlink()
    refused("tokenizer.json is missing")
    assert [p.name for p in tmp_path.iterdir()] == ["base"]


@pytest.mark.slow
def test_written_tokenizer_is_checked(tmp_path, monkeypatch):
    from coord_exporter import expand

    base = plain_base(tmp_path / "base")
    monkeypatch.setattr(expand, "extend_tokenizer", lambda folder, new: {})
    with pytest.raises(ExportError, match=r"would get id None instead of"):
        expand_vocab(base, tmp_path / "out", quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["base"]


@pytest.mark.slow
def test_expanded_base_takes_an_adapter(tmp_path):
    base = plain_base(tmp_path / "base", tied=True)
    expand_vocab(base, tmp_path / "expanded", quiet=True)
    make_adapter(tmp_path / "adapter", tmp_path / "expanded", "separate")
    report = merge(tmp_path / "expanded", tmp_path / "adapter", tmp_path / "out", quiet=True)
    assert report.verification["compared"] == report.changed
    kinds = [entry["kind"] for entry in read_json(tmp_path / "out" / "export.json")["history"]]
    assert kinds == ["expand-vocab", "merge"]


@pytest.mark.slow
def test_real_qwen_vocabulary(qwen_base, tmp_path):
    from tokenizers import Tokenizer

    report = expand_vocab(qwen_base, tmp_path / "out", markers=True, quiet=True)
    old, new = (Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (qwen_base, tmp_path / "out"))
    assert old.get_vocab_size() == 151_669 and old.token_to_id("</think>") == 151_668
    tokens = ["<|coord_*|>", "<|coord_0|>", "<|coord_999|>", "<obj_start>", "<obj_end>"]
    assert [new.token_to_id(token) for token in tokens] == [151_669, 151_670, 152_669, 152_670, 152_671]
    # 267 ids (the wildcard and 266 coordinates) lie in the padding of the published checkpoints.
    assert (report.reused, report.rows_before, report.rows_after) == (267, 151_936, 152_704)
    before, after = read_all(qwen_base)[EMBED], read_all(tmp_path / "out")[EMBED]
    assert torch.equal(after[:151_669], before[:151_669]) and not torch.equal(after[151_669], before[151_669])
    text = "Ein Foto, 猫 <|vision_start|> x=7\n<|object_ref_start|>cat<|object_ref_end|>"
    assert new.encode(text).ids == old.encode(text).ids
    assert new.encode(f"{text}<|coord_12|>cat").ids == [*old.encode(text).ids, 151_682, *old.encode("cat").ids]


@pytest.mark.slow
def test_expand_vocab_states_one_tie_where_the_base_states_two(tmp_path):
    """transformers ties by the value at the top; programs that read text_config alone would expect a head."""
    base = make_base(tmp_path / "base", True, torch.float32, expanded=False)
    config = read_json(base / "config.json")
    config["text_config"]["tie_word_embeddings"] = False
    edit_json(base / "config.json", **config)
    report = expand_vocab(base, tmp_path / "out", quiet=True)
    written = read_json(tmp_path / "out" / "config.json")
    assert written["tie_word_embeddings"] is written["text_config"]["tie_word_embeddings"] is True
    assert [warning for warning in report.warnings if "true at the top and false in text_config" in warning]
    for folder in (base, tmp_path / "out"):
        model = load(folder)
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_expand_vocab_names_older_tokens_without_rows(tmp_path):
    make_base(tmp_path / "base", True, torch.float32, expanded=False)
    path = tmp_path / "base" / "tokenizer.json"
    tokenizer = read_json(path)
    rows = read_json(tmp_path / "base" / "config.json")["text_config"]["vocab_size"]
    first = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    tokenizer["added_tokens"] += [{"id": i, "content": f"<old{i}>"} | plain for i in range(first, rows + 9)]
    edit_json(path, **tokenizer)
    report = expand_vocab(tmp_path / "base", tmp_path / "out", quiet=True)
    assert any(f"9 older tokens, ids {rows} to {rows + 8}, got new rows" in warning for warning in report.warnings)


NEW = NewTokens(Vocabulary({"a": 0, "b": 3}), ("x", "y"), 5)
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}


@pytest.mark.parametrize("decoder", [None, {"0": {"content": "a"}}, ["no mapping"]])
@pytest.mark.parametrize("added", [True, False])
def test_new_tokens_are_in_each_file_that_lists_added_ones_as_ordinary_tokens(tmp_path, decoder, added):
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": [{"id": 3, "content": "b"}], "rest": 1}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder, "rest": 1}))
    expected = {"tokenizer.json": {"added_tokens": [{"id": 3, "content": "b"}], "rest": 1}}
    expected["tokenizer.json"]["added_tokens"] += [{"id": 4, "content": "x"} | FLAGS, {"id": 5, "content": "y"} | FLAGS]
    if isinstance(decoder, dict):
        both = decoder | {"4": {"content": "x"} | FLAGS, "5": {"content": "y"} | FLAGS}
        expected["tokenizer_config.json"] = {"added_tokens_decoder": both, "rest": 1}
    if added:
        (tmp_path / "added_tokens.json").write_text('{"b": 3}')
        expected["added_tokens.json"] = {"b": 3, "x": 4, "y": 5}
    assert extend_tokenizer(tmp_path, NEW) == expected
    assert extend_tokenizer(tmp_path, NewTokens(NEW.vocabulary, (), 5)) == {}


def test_written_coordinates_have_to_start_where_they_were_announced(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    first, vocabulary = coord_vocab().first_id, Vocabulary(tokenizer.get_vocab())
    check_tokenizer(tmp_path, NewTokens(vocabulary, (), first))
    with pytest.raises(ExportError, match=f"start at {first} instead of {first + 1}"):
        check_tokenizer(tmp_path, NewTokens(vocabulary, (), first + 1))
    with pytest.raises(ExportError, match="<new> would get id None instead of"):
        check_tokenizer(tmp_path, NewTokens(vocabulary, ("<new>",), first))
    for ids in ({"gone": 5}, {"<|im_end|>": 5}):  # of the tokens before
        with pytest.raises(ExportError, match=r"would get id (None|\d+) instead of 5"):
            check_tokenizer(tmp_path, NewTokens(Vocabulary(vocabulary.ids | ids), (), first))


E, H = "model.embed_tokens.weight", "lm_head.weight"


@pytest.mark.parametrize(
    ("tensors", "config", "told"),
    [
        ({}, {}, None),
        ({H: (8, 2)}, {}, None),
        ({H: (9, 2)}, {}, "expected 8 rows of floats"),
        ({E: (8, 2, "I8")}, {}, "expected 8 rows of floats"),
        ({H: (8, 2, "F64")}, {}, "expected 8 rows of floats"),
        ({}, {"vocab_size": 9}, "vocab_size is 9, the embedding has 8"),
        ({}, {"vocab_size": 9, "text_config": {"vocab_size": 8}}, None),
        ({}, {"text_config": {}}, "vocab_size is None"),
        ({"lm_head.bias": (8,)}, {}, "a head with a bias"),
        ({"model.embed_tokens_per_layer.weight": (6, 2)}, {}, None),
        ({"model.embed_tokens_per_layer.weight": (5, 2)}, {}, "has 5 rows, one for each token"),
        ({"model.embed_tokens_per_layer.weight": (5, 2)}, {"model_type": "gemma3n"}, None),
        ({}, {"image_token_id": 3}, None),
        ({}, {"image_token_id": 4}, "image_token_id is 4, an unused id"),
        ({}, {"text_config": {"vocab_size": 8, "pad_token_id": 5}}, "pad_token_id is 5"),
        ({}, {"image_token_id": 6}, None),
        ({}, {"window": 4}, None),
    ],
)
def test_tables_configuration_and_tokenizer_have_to_agree(tmp_path, tensors, config, told):
    kinds = {E: (8, 2)} | tensors
    infos = tuple(
        TensorInfo(name, kind[2] if len(kind) > 2 else "F32", kind[:2], tmp_path, 0) for name, kind in kinds.items()
    )
    base = StoredCheckpoint(tmp_path, {"vocab_size": 8} | config, (SafetensorsFile(tmp_path, infos, {}, b""),), None)
    if told is None:
        assert _check_rows(base, Tables(E, H, True), NEW) == 8
    else:
        with pytest.raises(InputError, match=told):
            _check_rows(base, Tables(E, H, True), NEW)


def light_base(folder, tokens, rows, head=None, tied=True):
    """Two layers' worth of tables alone: a vocabulary of these tokens, an embedding of so many rows, and a head."""
    folder.mkdir(parents=True)
    added = [token(number, content) for number, content in enumerate(tokens, 3)]
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": added}))
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": tied}
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": rows}))
    tables = {E: torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))}
    save_file(tables | ({} if head is None else {H: tables[E] + head}), folder / "model.safetensors", {"format": "pt"})
    return folder


WILD, COORDS, OBJECTS = [WILDCARD_TOKEN], coord_tokens(), [*MARKERS["obj"].tokens]


@pytest.mark.parametrize(
    ("tokens", "rows", "options", "added", "first", "rows_after", "reused"),
    [
        ([], 2, {}, 1001, 4, 1024, 0),  # one older token without a row
        ([], 3, {}, 1001, 4, 1024, 0),
        ([], 4, {}, 1001, 4, 1024, 1),
        ([], 1003, {}, 1001, 4, 1024, 1000),
        ([], 1004, {}, 1001, 4, 1004, 1001),  # as many rows as tokens, whatever they are a multiple of
        ([], 1005, {}, 1001, 4, 1005, 1001),
        ([], 1003, {"wildcard": False}, 1000, 3, 1003, 1000),
        ([], 10, {"wildcard": False, "markers": True}, 1002, 3, 1024, 7),
        (WILD, 10, {}, 1000, 4, 1024, 6),
        (WILD, 10, {"wildcard": False}, 1000, 4, 1024, 6),
        (COORDS, 1003, {"wildcard": False}, 0, 3, 1003, 0),
        (WILD + COORDS, 1004, {}, 0, 4, 1004, 0),
        (WILD + COORDS, 1003, {}, 0, 4, 1024, 0),  # a token without a row, and none to add
        (WILD + COORDS, 1004, {"markers": True}, 2, 4, 1024, 0),
        (WILD + COORDS + OBJECTS[:1], 1006, {"markers": True}, 1, 4, 1006, 1),
        (WILD + COORDS + OBJECTS, 1006, {"markers": True}, 0, 4, 1006, 0),
    ],
)
def test_tokens_and_rows_at_their_borders(tmp_path, tokens, rows, options, added, first, rows_after, reused):
    base = light_base(tmp_path / "base", tokens, rows)
    report = expand_vocab(base, tmp_path / "out", quiet=True, **options)
    assert (report.added, report.first_coord, report.reused) == (added, first, reused)
    assert (report.rows_before, report.rows_after) == (rows, rows_after)
    before, after = read_all(base)[E], read_all(tmp_path / "out")[E]
    size, kept = 3 + len(tokens) + added, min(rows, 3 + len(tokens))
    assert after.shape == (rows_after, 4) and torch.equal(after[:kept], before[:kept])
    moved = rows_after if rows_after > rows else size  # padding that no token takes stays as it is
    assert after[kept:moved].any(1).all() and torch.equal(after[moved:], before[moved:])
    assert not any((row == before).all(1).any() for row in after[kept:moved])
    told = " ".join(report.warnings)
    rowless = 3 + len(tokens) - rows
    assert ("got new rows too" in told) is (rowless > 0)
    assert rowless <= 0 or f"{rowless} older token, ids {rows} to {rows + rowless - 1}, got" in told
    assert ("no multiple of 64" in told) is (rows_after % 64 > 0)
    history = read_json(tmp_path / "out" / "export.json")["history"]
    expected = [(added, first, rows, rows_after)] if added or rows != rows_after else []
    assert [(e["added"], e["first_coord"], e["rows_before"], e["rows"]) for e in history] == expected


@pytest.mark.parametrize(("head", "stated", "tied"), [
    (0, True, True), (0, False, False), (1, False, False), (1, True, False), (None, True, True),
])  # fmt: skip
def test_new_rows_follow_those_that_are_used_and_two_tables_are_drawn_apart(tmp_path, head, stated, tied):
    """Whatever the configuration says of tables that differ, and whatever stands in padding."""
    base = light_base(tmp_path / "base", [], 10, head, stated)
    expand_vocab(base, tmp_path / "out", quiet=True)
    tables = read_all(tmp_path / "out")
    assert {*tables} == {E} | (set() if head is None else {H})
    assert read_json(tmp_path / "out" / "config.json")["tie_word_embeddings"] is tied
    if head is not None:
        noise = [(tables[name] - read_all(base)[name][:3].mean(0))[3:] for name in (E, H)]
        assert torch.allclose(*noise, atol=1e-5) is tied
    padded = {name: value.clone() for name, value in read_all(base).items()}
    for value in padded.values():
        value[3:] = 100
    save_file(padded, base / "model.safetensors", {"format": "pt"})
    expand_vocab(base, tmp_path / "other", quiet=True)
    other = read_all(tmp_path / "other")
    assert all(torch.equal(tables[name], other[name]) for name in tables)


def test_moments_of_a_table_are_those_of_its_trained_rows_in_chunks_of_any_size(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    from coord_exporter import expand
    from coord_exporter.checkpoint.read import read_safetensors

    table = torch.randn(50, 3, generator=torch.Generator().manual_seed(2)) + 5
    table[40:] = 1000  # padding that nothing has trained
    save_file({"t": table}, tmp_path / "t.safetensors")
    (info,) = read_safetensors(tmp_path / "t.safetensors").tensors
    for rows in (2048, 40, 7, 1):
        monkeypatch.setattr(expand, "_CHUNK_ROWS", rows)
        mean, deviation = expand._moments(info, 40)
        torch.testing.assert_close(mean, table[:40].mean(0))
        torch.testing.assert_close(deviation, table[:40].std(0, correction=0))
