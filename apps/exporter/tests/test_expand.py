"""`expand-vocab`: ids, rows, files, on a tiny vocabulary and on Qwen's own."""

import json
import shutil

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
    make_model,
    make_tokenizer,
    read_all,
    read_json,
)

from coord_codec import WILDCARD_TOKEN, CoordVocab, coord_tokens
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


@pytest.mark.parametrize(("rows", "tied"), [(320, True), (320, False), (500, False), (1400, True)])
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


def test_padding_rows_that_no_token_uses_do_not_move_the_new_ones(plain, tmp_path):
    """The same vocabulary with rows behind it that were never trained."""
    shutil.copytree(plain, tmp_path / "base")
    count = len(load_tokenizer(plain))
    tensors = read_all(plain)
    for name in (EMBED, HEAD):
        tensors[name][count:] = 100.0
    save_file(tensors, tmp_path / "base" / "model.safetensors", {"format": "pt"})
    for name, base in (("out", plain), ("other", tmp_path / "base")):
        expand_vocab(base, tmp_path / name, quiet=True)
    used = slice(count, len(load_tokenizer(tmp_path / "out")))
    assert len(read_all(plain)[EMBED]) > count
    for name in (EMBED, HEAD):
        assert torch.equal(*(read_all(tmp_path / folder)[name][used] for folder in ("out", "other")))


def test_smooth_rows_of_neighbouring_bins_are_similar(plain, tmp_path):
    expand_vocab(plain, tmp_path / "out", init="smooth", quiet=True)
    count = len(load_tokenizer(plain))
    similar = torch.nn.functional.cosine_similarity
    for name in (EMBED, HEAD):
        rows = read_all(tmp_path / "out")[name][count + 1 : count + 1001].float()
        waves = rows - read_all(plain)[name][:count].float().mean(0)
        assert similar(waves[500], waves[501], dim=0) > 0.9 > similar(waves[500], waves[700], dim=0)


def test_markers_come_last_and_wildcard_can_be_left_out(plain, tmp_path):
    count = len(load_tokenizer(plain))
    expand_vocab(plain, tmp_path / "out", wildcard=False, markers=True, quiet=True)
    tokenizer = load_tokenizer(tmp_path / "out")
    ids = tokenizer.convert_tokens_to_ids(["<|coord_0|>", "<|coord_999|>", "<obj_start>", "<obj_end>"])
    assert ids == [count, count + 999, count + 1000, count + 1001]
    assert WILDCARD_TOKEN not in tokenizer.get_vocab()


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


def test_rows_for_tokens_that_were_added_without_any(tmp_path):
    tokenizer = make_tokenizer()
    make_model(tokenizer, False, torch.bfloat16, rows=320).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    report = expand_vocab(tmp_path / "base", tmp_path / "out", quiet=True)
    assert report.added == 0 and report.rows_after == 1280 and any("no processor" in w for w in report.warnings)
    after = read_all(tmp_path / "out")[EMBED]
    assert torch.equal(after[:320], read_all(tmp_path / "base")[EMBED]) and after[320:].any(1).all()


def test_tied_head_stored_beside_the_embedding(tmp_path):
    from safetensors.torch import save_file

    base = plain_base(tmp_path / "base", tied=True)
    tensors = read_all(base)
    save_file(tensors | {HEAD: tensors[EMBED].clone()}, base / "model.safetensors", metadata={"format": "pt"})
    expand_vocab(base, tmp_path / "out", quiet=True)
    after = read_all(tmp_path / "out")
    assert torch.equal(after[EMBED], after[HEAD]) and len(after[HEAD]) == 1280


def test_two_different_tables_are_not_tied_whatever_the_configuration_says(tmp_path):
    from safetensors.torch import save_file

    base = plain_base(tmp_path / "base", tied=True)
    tensors = {name: value.clone() for name, value in read_all(base).items()}  # the file they map is written anew
    head = 2 * tensors[EMBED]
    save_file(tensors | {HEAD: head}, base / "model.safetensors", metadata={"format": "pt"})
    expand_vocab(base, tmp_path / "out", quiet=True)
    after = read_all(tmp_path / "out")
    assert torch.equal(after[HEAD][:200], head[:200]) and torch.equal(after[EMBED][:200], tensors[EMBED][:200])
    assert read_json(tmp_path / "out" / "config.json")["tie_word_embeddings"] is False


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


def test_written_tokenizer_is_checked(tmp_path, monkeypatch):
    from coord_exporter import expand

    base = plain_base(tmp_path / "base")
    monkeypatch.setattr(expand, "extend_tokenizer", lambda folder, new: {})
    with pytest.raises(ExportError, match=r"would get id None instead of"):
        expand_vocab(base, tmp_path / "out", quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["base"]


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
    with pytest.raises(ExportError, match="would get id None instead of"):
        check_tokenizer(tmp_path, NewTokens(vocabulary, ("<new>",), first))


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
