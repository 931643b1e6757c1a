"""What is checked before a checkpoint's weights are read, and where an adapter's base is."""

import json
from types import SimpleNamespace

import pytest
from fakes import card_of
from safetensors.numpy import save_file

from coord_adapter import weights_digest
from coord_codec import InputError
from coord_detect.model import checkpoint
from coord_detect.settings.load import load_settings
from coord_detect.settings.record import Settings

np = pytest.importorskip("numpy")
pytest.importorskip("torch")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a function that makes a model's folder; its processor is a stub, and reading its weights ends the test."""
    opened = []

    def stop(source, **_):
        opened.append(str(source))
        raise OSError("weights are read now")

    processor = SimpleNamespace(tokenizer=None, image_processor=object())
    monkeypatch.setattr(checkpoint, "AutoProcessor", SimpleNamespace(from_pretrained=lambda *a, **k: processor))
    monkeypatch.setattr(checkpoint, "AutoModelForImageTextToText", SimpleNamespace(from_pretrained=stop))
    monkeypatch.setattr(checkpoint, "end_answers_as_asked", lambda *given: None)
    monkeypatch.setattr(checkpoint, "_vocabulary", lambda *given: (None, "found"))
    monkeypatch.setattr(checkpoint, "prompt_text", lambda *given: "rendered")

    def make(name, value, named=None, /, **stated):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        if named is None:
            (folder / "config.json").write_text('{"model_type": "qwen3_vl"}')
            save_file({"w": np.full(3, value)}, folder / "model.safetensors")
        else:
            (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(named)}))
        if stated:
            card_of().model_copy(update=stated).write(folder)
        return folder

    make.opened = opened
    return make


def told(folder):
    with pytest.raises(InputError) as caught:
        checkpoint.open_checkpoint(folder, load_settings(Settings, None, [])[0])
    return str(caught.value)


def test_each_statement_of_the_card_is_checked_before_weights_are_read(place):
    base = place("base", 1.0)
    own = weights_digest(base)
    refused = {
        "of-another": ({"base": "another"}, "another base"),
        "tokenizer": ({"base": own, "fingerprint": "other"}, "fingerprint"),
        "template": ({"base": own, "rendered_prompt": "other"}, "chat template"),
    }
    for name, (stated, match) in refused.items():
        assert match in told(place(name, 0, base, **stated)), name
    assert place.opened == []
    taken = {"base": own, "fingerprint": "found", "rendered_prompt": "rendered"}
    for name, stated in {"same": taken, "silent": {"base": None}, "without": {}}.items():
        assert "weights are read now" in told(place(name, 0, base, **stated)), name
    assert "weights are read now" in told(place("whole", 2.0, base="another"))  # a whole model rests on no base
    assert len(place.opened) == 4


def test_base_beside_the_checkpoints_of_a_run_comes_before_the_one_that_is_named(place):
    named, own = place("named", 1.0), place("run/base", 2.0)
    assert "weights are read now" in told(place("run/checkpoints/checkpoint-1", 0, named))
    assert "weights are read now" in told(place("run/elsewhere/checkpoint-1", 0, named))
    assert place.opened == [str(own), str(named)]
    assert "no such folder here" in told(place("lost", 0, named / "gone"))
