"""The tiny model: what its tokenizer knows, and which rows begin smooth."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from mixed_sources import write_sources
from tiny_run import TINY, tiny_config

from coord_codec import CoordVocab
from coord_trainer.config.sections import TinyModelConfig
from coord_trainer.data.load import load_training
from coord_trainer.model import tiny


def test_tokenizer_knows_prompts_words_and_conversations_of_every_source(tmp_path):
    sources = write_sources(tmp_path)
    sources[1] |= {"queries": "mixed", "class_prompt": "Where is {classes}?", "prompt": "Own prompt"}
    config = tiny_config(data={"sources": sources, "prompt": "All"}, evaluation={"images": "none"})
    texts = tiny._texts(config, load_training(config))
    assert texts[:4] == ["All", "Find every animal.", "Own prompt", "Where is ,?"]
    assert {"cat", "dog", "It is 4.", "Be brief.", "Which one is larger?"} <= set(texts[4:]) and texts[4:] == sorted(
        texts[4:]
    )
    assert not any("<image>" in text for text in texts)
    tokenizer = tiny.train_tokenizer(texts)
    assert len(tokenizer.tokenize("dog")) == 1 and CoordVocab.from_tokenizer(tokenizer).ids
    assert not {"<|coord_0|>", "<obj_start>"} & set(tiny.train_tokenizer(texts, coordinates=False).get_vocab())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("smooth", [True, False])
def test_rows_of_coordinates_begin_smooth_in_each_table(tied, smooth):
    config = tiny_config(model={"tiny": TINY | {"tied": tied, "smooth_rows": smooth}}).model.tiny
    tokenizer = tiny.train_tokenizer(["cat"])
    torch.manual_seed(0)
    model = tiny._build_model(tiny.build_processor(tokenizer, config), config)
    vocab = CoordVocab.from_tokenizer(tokenizer)
    tables = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    assert (tables[0] is tables[1]) is tied
    for table in tables:
        rows = table[vocab.first_id : vocab.first_id + len(vocab.ids)].detach()
        near, far = (rows[1:] - rows[:-1]).norm(dim=1).mean(), (rows[500:] - rows[:-500]).norm(dim=1).mean()
        assert bool(near < 0.2 * far) is smooth
        assert float(rows.square().mean().sqrt()) == pytest.approx(0.1 if smooth else 0.05, rel=0.1)
        others = torch.cat([table[: vocab.first_id], table[vocab.first_id + len(vocab.ids) :]]).detach()
        assert float(others.square().mean().sqrt()) == pytest.approx(0.05, rel=0.1)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


@pytest.mark.slow
def test_base_is_that_of_the_seed_and_made_once(tmp_path, monkeypatch):
    from safetensors.torch import load_file

    train = SimpleNamespace(words={"cat"})
    monkeypatch.setattr(tiny, "_texts", lambda *_: ["cat"])
    weights = {}
    for name, seed in (("a", 0), ("c", 1)):
        config = tiny_config(run={"seed": seed})
        partial = tmp_path / name / ".base.partial"
        partial.mkdir(parents=True)
        (partial / "left.bin").write_text("of a killed run")
        base = tiny.base_checkpoint(config, tmp_path / name, train)
        assert base == str(tmp_path / name / "base") and not partial.exists()
        assert not (tmp_path / name / "base" / "left.bin").exists()
        weights[name] = load_file(tmp_path / name / "base" / "model.safetensors")
    assert any(not torch.equal(weights["a"][key], weights["c"][key]) for key in weights["a"])
    monkeypatch.setattr(tiny, "_build_model", None)
    assert tiny.base_checkpoint(config, tmp_path / "c", train) == str(tmp_path / "c" / "base")  # as a resumed run
    shutil.rmtree(tmp_path / "a")
    stated = config.model_copy(update={"model": config.model.model_copy(update={"path": "own"})})
    assert tiny.base_checkpoint(stated, tmp_path / "a", train) == "own" and not (tmp_path / "a").exists()


OTHER = {
    "hidden": 48, "layers": 1, "heads": 2, "ffn": 64, "vision_hidden": 48, "vision_layers": 1, "position_side": 4,
    "tied": False, "min_pixels": 2048, "max_pixels": 4096,
}  # fmt: skip


@pytest.mark.slow
def test_each_size_of_the_tiny_model_is_that_of_its_checkpoint_and_changes_no_other():
    tokenizer = tiny.train_tokenizer(["cat"])

    def sizes(**changes):
        config = tiny_config(model={"tiny": TINY | {"smooth_rows": False} | changes}).model.tiny
        processor = tiny.build_processor(tokenizer, config)
        with torch.device("meta"):
            model = tiny._build_model(processor, config)
        text, vision, limits = model.config.text_config, model.config.vision_config, processor.image_processor.size
        assert (text.head_dim * text.num_attention_heads, sum(text.rope_parameters["mrope_section"])) == (
            config.hidden, config.hidden // config.heads // 2,
        )  # fmt: skip
        assert text.num_key_value_heads == vision.num_heads == text.num_attention_heads == config.heads
        assert vision.out_hidden_size == text.hidden_size and vision.intermediate_size == 2 * vision.hidden_size
        assert text.tie_word_embeddings is model.config.tie_word_embeddings and text.vocab_size >= len(tokenizer)
        ids = (model.config.image_token_id, model.config.video_token_id, model.config.vision_start_token_id)
        marks = [f"<|{name}|>" for name in ("image_pad", "video_pad", "vision_start", "vision_end")]
        assert [*ids, model.config.vision_end_token_id] == tokenizer.convert_tokens_to_ids(marks)
        end = model.generation_config
        assert (end.eos_token_id, end.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
        return {
            "hidden": text.hidden_size, "layers": text.num_hidden_layers, "heads": text.num_attention_heads,
            "ffn": text.intermediate_size, "vision_hidden": vision.hidden_size, "vision_layers": vision.depth,
            "position_side": vision.num_position_embeddings ** 0.5, "tied": text.tie_word_embeddings,
            "min_pixels": limits["shortest_edge"], "max_pixels": limits["longest_edge"],
        }  # fmt: skip

    plain = sizes()
    assert {*OTHER, "smooth_rows"} == {*TinyModelConfig.model_fields}
    for name, value in OTHER.items():
        assert plain[name] != value and sizes(**{name: value}) == plain | {name: value}
