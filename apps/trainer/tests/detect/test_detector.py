"""A checkpoint on disk, asked through the detector and through the evaluation of training: the same answers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import RuleEngine
from fakes import detector as fake_detector
from PIL import Image
from tiny_run import tiny_config

from coord_codec import InputError
from coord_detect.answers import local
from coord_detect.answers.token_limit import token_limit
from coord_detect.model.checkpoints import locate_model
from coord_trainer import Detector
from coord_trainer.config.run_config import load_run_config
from coord_trainer.data.shapes import draw_sets
from coord_trainer.evaluation.decodings import predict_images
from coord_trainer.model.tiny import base_checkpoint

CONFIG = tiny_config(evaluation={"images": "heldout", "batch_size": 2, "max_new_tokens": 24})


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    train, heldout = draw_sets(CONFIG, folder / "data")
    model = base_checkpoint(CONFIG, folder, train)
    words = ["data.markers=obj", "evaluation.max_new_tokens=24"]
    return folder, model, heldout, Detector(model, load_run_config(None, words, trains=False))


@pytest.mark.slow
def test_detector_answers_as_the_evaluation_of_a_run_does(asked, tmp_path):
    _, model, heldout, detector = asked
    predict_images(CONFIG, Path(model), heldout, tmp_path / "p.jsonl")
    records = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    images = [heldout.image(i) for i in range(len(heldout))]
    for record, image, found in zip(records, images, detector.predict(images), strict=True):
        assert len(found.text) > 0 and found.text == record["text"]
        assert (found.size, found.finish_reason) == (image.size, record["finish_reason"])


@pytest.mark.slow
def test_paths_arrays_and_images_are_one(asked, tmp_path):
    *_, heldout, detector = asked
    image = heldout.image(0)
    image.save(tmp_path / "a.png")
    texts = {detector(given).text for given in (image, np.asarray(image), tmp_path / "a.png", str(tmp_path / "a.png"))}
    assert len(texts) == 1
    assert detector(image)._repr_png_()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_batch_that_does_not_fit_into_memory_is_halved(asked, monkeypatch):
    *_, heldout, detector = asked
    image, batches = heldout.image(0), []
    answer_images = local.answer_images

    def one_at_a_time(checkpoint, images, *words, **named):
        batches.append(len(images))
        if len(images) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return answer_images(checkpoint, images, *words, **named)

    monkeypatch.setattr(local, "answer_images", one_at_a_time)
    assert [found.text for found in detector.predict([image] * 3)] == [detector(image).text] * 3
    assert batches == [3, 1, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "image: expected a path"),
        (np.zeros((2, 2, 3)), "of uint8, found float64"),
        (np.zeros((2, 2, 5), np.uint8), r"found uint8 \(2, 2, 5\)"),
        (np.zeros((0, 2, 3), np.uint8), r"found uint8 \(0, 2, 3\)"),
        ("nowhere.png", r"nowhere\.png"),
        ("https://x.org/a.jpg", "a URL, and nothing is downloaded here"),
    ],
)
def test_what_is_no_image_is_named(asked, given, told):
    with pytest.raises(InputError, match=told):
        asked[-1](given)


@pytest.mark.slow
def test_batches_are_of_any_length_and_grey_is_an_image(asked):
    assert len(asked[-1].predict([])) == 0
    for given in (None, 3, {"image": 1}):
        with pytest.raises(InputError, match=f"expected a path, a PIL image or an array, found {type(given).__name__}"):
            asked[-1].predict(given)
    with pytest.raises(InputError, match=r"images\[1\]: expected a path"):
        asked[-1].predict([np.zeros((4, 4), np.uint8), 3])
    grey = np.zeros((40, 60), np.uint8)
    assert asked[-1](grey[..., None]).text == asked[-1](grey).text


@pytest.mark.parametrize(
    ("prompt", "labels", "told"),
    [
        (None, ["a\nb"], "label 'a\\\\nb': expected one line"),
        (None, [" "], "label ' ': expected a description"),
        (None, ["<|coord_1|>"], "control token"),
        (None, "cat", "expected a list of labels, found the text 'cat'"),
        (None, [3], "label 3: expected text"),
        ("\ud800", [], "half a surrogate pair"),
        ("<|im_end|>", [], "data.prompt"),
    ],
)
def test_what_cannot_be_asked_for_is_named(asked, prompt, labels, told):
    with pytest.raises(InputError, match=told):
        asked[-1].asking(prompt, labels)


@pytest.mark.slow
def test_answers_held_to_names_keep_the_boxes_of_the_decoding(asked):
    words = ["data.markers=obj", "evaluation.max_new_tokens=24", "evaluation.decoding.boxes=best_iou"]
    free = Detector(asked[1], load_run_config(None, words, trains=False))
    held = free.asking(only=["red circle"])
    assert held.model.reading.boxes == "best_iou" and {o.label for o in held(asked[2].image(0))} <= {"red circle"}
    assert held.asking("Find all.").model.forced == ("red circle",)
    freed = held.asking(only=[])
    assert freed.model.forced == () and freed.model.config == free.model.config


@pytest.mark.slow
def test_thin_images_fail_alone_and_are_named(asked):
    images = [asked[2].image(0), Image.new("RGB", (1000, 2))]
    assert [answer["finish_reason"] == "error" for answer in asked[-1].model.answers(images)] == [False, True]
    whole, thin = asked[-1].predict(images)
    assert whole.text and "aspect ratio" in thin.error and (len(thin), thin.finish_reason) == (0, "error")
    with pytest.raises(InputError, match=r"image-0.png: .*aspect ratio"):
        asked[-1].predict(images[1])


def test_truncated_and_closed_images_are_named(asked, tmp_path):
    Image.effect_noise((64, 64), 50).convert("RGB").save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:-500])
    closed = Image.new("RGB", (4, 4))
    closed.close()
    for image in (Image.open(tmp_path / "a.jpg"), closed):
        with pytest.raises(InputError, match=r"image-0.png: it cannot be decoded|a.jpg"):
            asked[-1](image)


def test_room_follows_from_the_configuration_and_not_from_the_truth(asked):
    tokenizer = asked[-1].model.engine.checkpoint.processor.tokenizer
    few, many = (load_run_config(None, [f"data.max_objects={n}"], trains=False) for n in (1, 5))
    short, long = (token_limit(few, tokenizer, [name]) for name in ("cat", "cat " * 9))
    assert short < long < token_limit(many, tokenizer, ["cat " * 9])
    assert (token_limit(many, tokenizer, ["cat"]) - 16) == 5 * (short - 16)


@pytest.mark.slow
def test_room_of_any_image_is_not_that_of_generated_shapes(asked):
    """A configuration without annotations names no images here: whoever asks brings their own."""
    rooms = [
        Detector(asked[1], load_run_config(None, ["data.markers=obj", f"data.max_objects={n}"], trains=False))
        for n in (10, 40)
    ]
    ten, forty = (detector.model.engine.max_new_tokens - 16 for detector in rooms)
    assert forty == 4 * ten > 4 * 10 * 4
    held = rooms[0].asking(only=[" ".join(["cat"] * 30)])  # its objects take as many tokens as their name
    assert held.model.engine.max_new_tokens > rooms[0].model.engine.max_new_tokens
    assert held.asking(only=[]).model.engine.max_new_tokens == rooms[0].model.engine.max_new_tokens


def test_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(InputError, match="no model found"):
        locate_model(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        locate_model(tmp_path / "typo")


@pytest.mark.parametrize(
    ("error", "reason"), [(MemoryError(), "MemoryError"), (ValueError("too thin\nmore"), "too thin")]
)
def test_image_that_fails_without_a_word_has_a_reason_too(error, reason):
    """Python's own MemoryError has no message."""

    class Fails(RuleEngine):
        def answer(self, images):
            raise error

    (answer,) = fake_detector(Fails()).answers([Image.new("RGB", (4, 4))])
    assert answer == {"text": None, "finish_reason": "error", "error": reason}


def test_a_model_behind_an_endpoint_cannot_be_asked_otherwise():
    with pytest.raises(InputError, match="endpoint"):
        fake_detector().asking("x")
