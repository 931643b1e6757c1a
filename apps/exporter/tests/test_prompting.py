"""coordexp.json in OUT: whose it is, what contradicts it, and the image processor that follows it."""

import json

import pytest
from safetensors.torch import save_file
from tiny_checkpoint import EMBED, coord_vocab, make_adapter, merge_in, read_all, read_json, refused

from coord_adapter import weights_digest
from coord_codec import CoordVocab


def put_card(folder, **card):
    stated = {"format": 1, "prompt": "What?"} | card
    (folder / "coordexp.json").write_text(
        json.dumps({key: value for key, value in stated.items() if value is not None})
    )


def test_card_of_the_adapter_comes_along_and_the_bases_does_not(files):
    right = coord_vocab().fingerprint("qwen")
    put_card(files / "base", prompt="before")
    put_card(files / "adapter", fingerprint=right)
    report = merge_in(files, files / "out")
    assert read_json(files / "out" / "coordexp.json") == read_json(files / "adapter" / "coordexp.json")
    assert read_json(files / "out" / "export.json")["history"][-1]["fingerprint"] == right
    assert not any("coordexp" in warning for warning in report.warnings)
    (files / "adapter" / "coordexp.json").unlink()
    report = merge_in(files, files / "plain")
    assert not (files / "plain" / "coordexp.json").exists()
    assert any("the base's is left out" in warning for warning in report.warnings)


def test_fingerprint_of_a_card_is_checked_without_offsets_and_against_them(files, bases):
    other = CoordVocab(1269).fingerprint("qwen")
    put_card(files / "adapter", fingerprint=other)
    refused(files, "that of the adapter's offsets")
    make_adapter(files / "lora", bases(False))
    put_card(files / "lora", fingerprint=other)
    refused(files, f"fingerprint {other}: the base's tokenizer has", adapter=files / "lora")


@pytest.mark.slow
def test_merge_refuses_another_base_of_the_same_shapes(files):
    put_card(files / "adapter", base=weights_digest(files / "base"))
    assert not any("digest" in warning for warning in merge_in(files, files / "out").warnings)
    tensors = read_all(files / "base")
    tensors[EMBED][300:] += 1  # as expand-vocab with another seed
    save_file(tensors, files / "base" / "model.safetensors", {"format": "pt"})
    refused(files, "the adapter was trained on another base.*--force")
    assert any("another base" in warning for warning in merge_in(files, files / "out", force=True).warnings)
    (files / "adapter" / "coordexp.json").unlink()
    assert any("names no digest of its base" in warning for warning in merge_in(files, files / "plain").warnings)


@pytest.mark.parametrize(
    ("card", "told"),
    [
        ({"grid": {"bins": 1000, "scale": 999}}, "coordexp.json: grid: expected 1000 bins of 1/1000, found"),
        ({"grid": [1000]}, "coordexp.json: grid: expected 1000 bins"),
        ({"format": 2}, "coordexp.json: format: expected 1, found 2"),
        ({"format": None}, "coordexp.json: format: expected 1, found None"),
        ({"fingerprint": 7}, "that of the adapter's offsets"),
        (None, "coordexp.json: expected a JSON object"),
    ],
)
def test_card_that_cannot_be_followed_is_refused(files, card, told):
    put_card(files / "adapter", **(card or {}))
    if card is None:
        (files / "adapter" / "coordexp.json").write_text("[]")
    refused(files, told)


def test_image_processor_of_out_has_the_pixels_of_training(files):
    path = files / "base" / "processor_config.json"
    before = json.loads(path.read_text())
    size = before["image_processor"]["size"]
    assert size == {"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    right = {"min": 32 * 32, "max": 64 * 64}
    for pixels, told in ((right, 0), (right | {"max": None}, 0), (right | {"max": 5000}, 1)):
        put_card(files / "adapter", pixels=pixels, fingerprint=coord_vocab().fingerprint("qwen"))
        warnings = [warning for warning in merge_in(files, files / "out", force=True).warnings if "edge" in warning]
        assert len(warnings) == told
        out = json.loads((files / "out" / "processor_config.json").read_text())
        expected = {"size": size | ({"longest_edge": 5000} if told else {})}
        if told and "max_pixels" in before["image_processor"]:  # transformers 5.0 states both spellings
            expected["max_pixels"] = 5000
        assert out == before | {"image_processor": before["image_processor"] | expected}
    assert warnings[0].startswith("OUT's processor_config.json has")
    assert "longest_edge 5000 (the base's is 4096)" in warnings[0]
    assert json.loads(path.read_text()) == before


@pytest.mark.parametrize("form", [None, 4])
def test_both_spellings_of_pixels_are_those_of_training(files, form):
    (files / "base" / "processor_config.json").unlink()
    path = files / "base" / "preprocessor_config.json"
    path.write_text(json.dumps({"min_pixels": 1024, "max_pixels": 9999, "size": {"longest_edge": 9999}}))
    put_card(files / "adapter", pixels={"min": 2048, "max": 4096}, fingerprint=coord_vocab().fingerprint("qwen"))
    merge_in(files, files / "out", form=form)
    out = json.loads((files / "out" / "preprocessor_config.json").read_text())
    assert out == {"min_pixels": 2048, "max_pixels": 4096, "size": {"longest_edge": 4096}}


def test_image_processor_that_is_no_object_is_refused(files):
    put_card(files / "adapter", pixels={"max": 4096}, fingerprint=coord_vocab().fingerprint("qwen"))
    (files / "base" / "processor_config.json").write_text('{"image_processor": [1]}')
    refused(files, "processor_config.json: image_processor: expected an object")
