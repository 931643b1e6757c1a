"""Vocabularies as published ones are: large, padded, with coordinates in the place of renamed reserved tokens."""

import json

import pytest
from PIL import Image
from tiny_families import build
from tiny_run import tiny_config

from coord_codec import MARKERS, InputError, Instance, encode_target, find_layout

pytest.importorskip("swift")
pytestmark = pytest.mark.slow

ROWS = 68_320
FIRST_ADDED = 66_000
"""Id of the first special token, behind which the tokenizer is shorter than the table."""


def enlarge(folder, rows=ROWS):
    """Fill the vocabulary of a tokenizer up to `FIRST_ADDED`, move all added tokens there, in another order."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    words, added = content["model"]["vocab"], content["added_tokens"]
    # Coordinates first: where other models have reserved tokens, which were renamed.
    added.sort(key=lambda token: (not token["content"].startswith("<|coord_"), token["id"]))
    for number in range(len(words), FIRST_ADDED):
        words[f"unused{number}"] = number
    for number, token in enumerate(added, start=FIRST_ADDED):
        token["id"] = number
    path.write_text(json.dumps(content))
    ids = {token["content"]: token["id"] for token in added}
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("added_tokens_decoder", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= {"vocab_size": rows, "pad_token_id": None}
    names = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    names |= {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    (folder / "config.json").write_text(json.dumps(config | {key: ids[name] for key, name in names.items()}))
    return ids


def run_config(base, **training):
    settings = {"tuner_type": "lora", "target_modules": ["all-linear"], "per_device_train_batch_size": 2}
    return tiny_config(
        model={"path": str(base)},
        custom={"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
        training=settings | training,
    )


def opened(base, folder):
    from coord_trainer.swift.open_run import open_run

    return open_run(run_config(base), folder, str(base), evaluates=False, without_weights=True)


LARGE = pytest.mark.drawn(1, "large")


@pytest.fixture(scope="module", params=["qwen3_5", "qwen2_5_vl"])
def large(request, tmp_path_factory):
    """An opened run of a large vocabulary, and the ids of its added tokens."""
    from coord_trainer.model.tiny import train_tokenizer

    folder, config = tmp_path_factory.mktemp("large"), tiny_config()
    build(request.param, train_tokenizer([config.data.prompt, "red square"]), config.model.tiny, folder / "base")
    ids = enlarge(folder / "base")
    return opened(folder / "base", folder / "run"), ids


@LARGE
def test_coordinates_are_found_where_the_tokenizer_has_them(large):
    run, ids = large
    assert run.vocab.first_id == ids["<|coord_0|>"] == FIRST_ADDED + 1  # after the wildcard
    assert run.markers == tuple(ids[token] for token in MARKERS["obj"].tokens)
    assert len(run.processor.tokenizer) < ROWS == run.model.get_input_embeddings().num_embeddings


@LARGE
def test_answer_is_supervised_and_laid_out_under_these_ids(large):
    run, ids = large
    instance = Instance(image="a", objects=[{"desc": "red square", "bbox": [0.1, 0.2, 0.3, 0.4]}])
    target = encode_target(instance, markers="obj")
    messages = [{"role": "user", "content": "<image>find"}, {"role": "assistant", "content": target}]
    sample = run.encode({"messages": messages, "images": [Image.new("RGB", (64, 64))]})
    labels = list(sample["labels"])
    (found,) = find_layout(labels, run.vocab, markers=run.markers).objects
    assert [labels[i] - run.vocab.first_id for i in found.coord_positions] == [100, 200, 300, 400]
    assert sample["input_ids"].count(ids["<|image_pad|>"]) > 1


@LARGE
def test_offsets_cover_these_rows_and_no_reserved_one(large):
    from coord_trainer.model.parameters import offset_ids

    run, ids = large
    found = offset_ids(run_config("base"), run.vocab, run.markers, ROWS, run.family.native_markers)
    expected = {ids[f"<|coord_{k}|>"] for k in range(1000)} | {ids[token] for token in MARKERS["obj"].tokens}
    assert set(found) == expected


@LARGE
def test_thoughts_of_training_data_are_taught_and_empty_ones_are_not(large):
    run, _ = large
    if not run.family.empty_thought:
        pytest.skip("the family does not think")
    thought = "<think>\nred\n</think>\n\nsquare"

    def learnt(answer):
        messages = [{"role": "user", "content": "<image>find"}, {"role": "assistant", "content": answer}]
        labels = run.encode({"messages": messages, "images": [Image.new("RGB", (64, 64))]})["labels"]
        return run.processor.tokenizer.decode([label for label in labels if label != -100]).rstrip("\n")

    end = run.family.answer_end
    assert learnt(thought) == thought + end
    assert learnt("square") == learnt("<think>\n\n</think>\n\nsquare") == "square" + end


def test_table_that_is_too_short_for_the_coordinates_is_refused(tmp_path):
    from coord_trainer.model.tiny import train_tokenizer

    config = tiny_config()
    build("qwen3_5", train_tokenizer([config.data.prompt]), config.model.tiny, tmp_path / "base")
    enlarge(tmp_path / "base", rows=FIRST_ADDED + 500)
    with pytest.raises(InputError, match=r"outside the embedding, which has 66500 rows; expand"):
        opened(tmp_path / "base", tmp_path / "run")
