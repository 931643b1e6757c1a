"""`--form 4`: what is written, what stays, and what is refused before anything is written."""

import json

import pytest
from tiny_checkpoint import edit_json, read_json

from coord_exporter import InputError, merge
from coord_exporter.checkpoint.folder import Export
from coord_exporter.checkpoint.read import StoredCheckpoint
from coord_exporter.expand import expand_vocab
from coord_exporter.form4 import in_form

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
        ({"vision_config": {"rope_parameters": {"rope_theta": 2e4}}}, 4, "vision_config: rope_parameters.rope_theta"),
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


SPECIAL = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}
SPECIAL |= {"image_token": "<i>", "video_token": "<v>"}
OF_MODEL = {"image_token": "<i>", "video_token": "<v>"}
LISTED = {"tokenizer_class": "T", "additional_special_tokens": ["<a>"]}


@pytest.mark.parametrize(
    ("stored", "rewritten", "expected"),
    [
        ({"tokenizer_class": "T"}, {}, None),  # as transformers 4 wrote it
        ({"tokenizer_class": "T", "extra_special_tokens": {"image_token": "<i>"}}, {}, None),
        ({"tokenizer_class": "T", "backend": "tokenizers"}, {}, LISTED | {"additional_special_tokens": []}),
        ({"tokenizer_class": "T", "extra_special_tokens": ["<a>"], "backend": "tokenizers"}, {}, LISTED),
        ({"tokenizer_class": "T", "extra_special_tokens": ["<a>"], "model_specific_special_tokens": {}}, {}, LISTED),
        (
            {"tokenizer_class": "T", "extra_special_tokens": ["<a>"]} | SPECIAL,
            {},
            LISTED | SPECIAL | {"extra_special_tokens": OF_MODEL},
        ),
        ({"extra_special_tokens": ["<old>"]}, {"tokenizer_class": "T", "extra_special_tokens": ["<a>"]}, LISTED),
        (None, {"tokenizer_class": "T", "extra_special_tokens": ["<a>"]}, LISTED),
        (None, {}, None),
    ],
)
def test_tokenizer_in_the_form_is_that_of_the_export(tmp_path, stored, rewritten, expected):
    name, path = "tokenizer_config.json", tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(stored))
    base = StoredCheckpoint(tmp_path, {"model_type": "qwen2_vl"}, (), None)
    companions = {} if stored is None else {name: path}
    others = {"tokenizer.json": {"added_tokens": [1]}} | ({name: rewritten} if rewritten else {})
    export = in_form(Export(base, {}, base.config, companions, {"kind": "merge"}, others), 4)
    assert export.rewritten.get(name) == (rewritten or None if expected is None else expected)
    assert export.rewritten["tokenizer.json"] == others["tokenizer.json"]
    assert export.entry == {"kind": "merge", "form": 4} and in_form(export, None) is export


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"size": {"shortest_edge": 4, "longest_edge": 9}}, {"min_pixels": 4, "max_pixels": 9}),
        ({"size": {"longest_edge": 9}, "max_pixels": 8}, {"max_pixels": 8}),  # what is stated stays
        ({"size": None}, {}),
        ({"size": {"height": 448, "width": 448}}, {}),
    ],
)
def test_processor_in_the_form_is_in_two_files_with_both_spellings(tmp_path, settings, expected):
    stored = {"image_processor": settings, "video_processor": {"fps": 2}, "processor_class": "P", "other": 1}
    base = StoredCheckpoint(tmp_path, {"model_type": "internvl"}, (), None)
    names = ["processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"]
    files = in_form(Export(base, {}, base.config, {}, None, {names[0]: stored}), 4).rewritten
    assert files == {
        names[0]: {"processor_class": "P", "other": 1},
        names[1]: settings | expected | {"processor_class": "P"},
        names[2]: {"fps": 2, "processor_class": "P"},
    }


YARN = {"rope_type": "yarn", "factor": 4.0}
OLD_YARN = {"rope_theta": 5.0, "rope_scaling": YARN | {"type": "yarn"}}
PLAIN, OLD_PLAIN = {"rope_type": "default", "rope_theta": 5}, {"rope_theta": 5, "rope_scaling": None}
VISION = {"model_type": "x"}


@pytest.mark.parametrize(
    ("kind", "section", "parameters", "expected"),
    [
        ("qwen2_vl", None, YARN | {"rope_theta": 5.0}, OLD_YARN),
        ("qwen2_vl", "text_config", YARN | {"rope_theta": 5.0}, OLD_YARN),
        ("qwen2_vl", None, PLAIN, OLD_PLAIN),
        ("qwen2_vl", "text_config", PLAIN, OLD_PLAIN),
        ("qwen2_vl", "vision_config", {"rope_theta": 10000.0}, {"model_type": "qwen2_vl"}),
        ("internvl", "vision_config", {"rope_theta": 10000.0}, VISION),
        ("qwen2_vl", None, {"rope_theta": None}, "a number"),
        ("qwen2_vl", "text_config", {"rope_type": "default"}, "text_config: .* a number"),
    ],
)
def test_rotary_embedding_in_the_form(tmp_path, kind, section, parameters, expected):
    rest = VISION if section == "vision_config" else {}

    def with_part(part):
        return {"model_type": kind} | (part if section is None else {section: part})

    config = with_part(rest | {"rope_parameters": parameters})
    export = Export(StoredCheckpoint(tmp_path, config, (), None), {}, config, {}, None)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            in_form(export, 4)
    else:
        assert in_form(export, 4).config == with_part(expected)
