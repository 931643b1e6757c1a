"""Passes captured as CUDA graphs answer as transformers' own loop does."""

import pytest
import torch

pytest.importorskip("swift")
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.mark.parametrize("grammar", ["none", "markers"])
def test_captured_answers_equal_those_of_generate(grammar, tiny_model, monkeypatch):
    from PIL import Image
    from tiny_run import tiny_config

    from coord_detect.answers import generate
    from coord_detect.model.checkpoint import open_checkpoint
    from coord_detect.settings.decoding import Decoding
    from coord_detect.speed import of_checkpoint

    checkpoint = open_checkpoint(tiny_model, tiny_config())
    checkpoint.model.to("cuda")
    images = [Image.effect_noise((96, 32 * at), 90).convert("RGB") for at in (1, 2, 3)]
    asked = (checkpoint, images, tiny_config().data, Decoding(grammar=grammar), 40)
    assert of_checkpoint.has_fixed_shapes(checkpoint)
    found = [answer["text"] for speed in ("plain", "exact") for answer in generate.answer_images(*asked, speed=speed)]
    monkeypatch.setattr(generate, "has_fixed_shapes", lambda checkpoint: False)
    assert found == 2 * [answer["text"] for answer in generate.answer_images(*asked)]
