"""`--form 4`: what is written, what stays, and what is refused before anything is written."""

import pytest
from tiny_checkpoint import edit_json, read_json

from coord_exporter import InputError, merge
from coord_exporter.expand import expand_vocab

ROPE = {"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": True}


@pytest.mark.parametrize("form", [None, 4])
def test_merge_writes_small_files_in_the_form_and_equal_weights(files, tmp_path, form):
    out, config = tmp_path / "out", read_json(files / "base" / "config.json")
    config["text_config"]["rope_parameters"]["partial_rotary_factor"] = 0.5
    edit_json(files / "base" / "config.json", **config)
    merge(files / "base", files / "adapter", out, quiet=True, verify=form is not None, form=form)
    text, vision = (read_json(out / "config.json")[f"{part}_config"] for part in ("text", "vision"))
    tokenizer, processor = (read_json(out / f"{part}_config.json") for part in ("tokenizer", "processor"))
    before = read_json(files / "base" / "processor_config.json")
    if form is None:
        assert "rope_parameters" in text and "extra_special_tokens" in tokenizer and processor == before
        assert not (out / "preprocessor_config.json").exists()
        return
    assert (text["rope_theta"], text["rope_scaling"]) == (10000.0, ROPE | {"type": "default"})
    assert text["partial_rotary_factor"] == 0.5
    assert vision["model_type"] == "qwen3_vl" and not {"rope_parameters", "extra_special_tokens"} & {
        *text,
        *vision,
        *tokenizer,
    }
    assert (
        tokenizer["additional_special_tokens"]
        == read_json(files / "base" / "tokenizer_config.json")["extra_special_tokens"]
    )
    images = read_json(out / "preprocessor_config.json")
    assert images == before["image_processor"] | {
        "processor_class": "Qwen3VLProcessor",
        "min_pixels": 1024,
        "max_pixels": 4096,
    }
    assert processor == {"processor_class": "Qwen3VLProcessor"} and (out / "video_preprocessor_config.json").exists()
    merge(files / "base", files / "adapter", tmp_path / "kept", quiet=True, verify=False)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (out, tmp_path / "kept")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("changes", "form", "match"),
    [
        ({"model_type": "gemma3"}, 4, "model_type: expected qwen2_vl or .* or internvl .* found 'gemma3'"),
        ({"vision_config": {"rope_parameters": {"rope_theta": 5.0}}}, 4, "vision_config: rope_parameters.rope_theta"),
        ({"text_config": None}, 3, "--form: expected 4, found 3"),
    ],
)
def test_what_the_form_cannot_state_is_refused(files, tmp_path, changes, form, match):
    config = read_json(files / "base" / "config.json")
    nested = {key: {**config[key], **value} if isinstance(value, dict) else value for key, value in changes.items()}
    edit_json(files / "base" / "config.json", **{key: value for key, value in nested.items() if value is not None})
    with pytest.raises(InputError, match=match):
        expand_vocab(files / "base", tmp_path / "out", form=form, quiet=True)
    assert not (tmp_path / "out").exists()
