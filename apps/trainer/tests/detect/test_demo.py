"""The demo's page: an image in, boxes, table and answer out; labels hold the answer, mistakes are said on the page."""

import socket
from collections import Counter
from random import Random

import pytest
from PIL import Image, ImageOps
from tiny_run import tiny_config

from coord_codec import InputError
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.detection.demo import build_demo, serve_demo
from coord_trainer import Detector
from coord_trainer.config.run_config import load_run_config

pytestmark = pytest.mark.slow  # importing gradio takes seconds


@pytest.fixture(scope="module")
def gradio():
    return pytest.importorskip("gradio")  # here, since it takes seconds of every process that collects this file


@pytest.fixture(scope="module")
def page(tiny_model, gradio):
    words = ["data.markers=obj", "evaluation.max_new_tokens=24"]
    return build_demo(Detector(tiny_model, load_run_config(None, words, trains=False)))


@pytest.fixture(scope="module")
def find(page):
    (event,) = [function for function in page.fns.values() if function.api_name == "find"]
    return event.fn


@pytest.fixture(scope="module")
def image():
    """Noise that is the same each time: what an untrained model says of it is, too."""
    return Image.frombytes("RGB", (96, 64), Random(0).randbytes(96 * 64 * 3))


def test_an_untrained_model_held_to_two_names_says_those_alone(find, image):
    shown, rows, text = find(image, "Find everything.", "", only="red circle, blue square")
    assert shown.size == (288, 192) and len(rows) > 0  # enlarged, so that labels do not cover it
    assert shown.tobytes() != ImageOps.scale(image, 3, Image.Resampling.NEAREST).tobytes()
    for label, score, x1, y1, x2, y2 in rows:
        assert label in {"red circle", "blue square"} and 0 <= score <= 1
        assert 0 <= x1 <= x2 <= 96 and 0 <= y1 <= y2 <= 64
    assert text.startswith("<obj_start>")
    assert find(image, "Find everything.", "")[2] != text


def test_threshold_leaves_out_boxes_and_a_view_is_fused(find, gradio, image):
    only = "red circle, blue square"
    rows = find(image, "", "", [], 0, only)[1]
    assert rows and find(image, "", "", [], 1, only)[1] == [] == find(image, "", "zebra", [], 0, only)[1]
    assert find(image, "", "", ["mirror"], 0, only)[1] != rows
    with pytest.raises(gradio.Error, match="views such as"):
        find(image, "", "", ["upside down"], 0)


def test_no_button_uploads_an_image(page):
    (drawn,) = [block for block in page.blocks.values() if getattr(block, "label", None) == "Boxes"]
    assert drawn.buttons == ["download", "fullscreen"]


def test_without_an_image_the_page_says_so(find, gradio):
    with pytest.raises(gradio.Error, match="Drop an image") as told:
        find(None, "", "")
    assert not told.value.print_exception  # no traceback on the server's console for a user's mistake


def test_transparent_image_is_laid_over_white_as_everywhere_else(page, find, tmp_path, gradio):
    image = Image.new("RGBA", (96, 64), (0, 0, 0, 0))
    image.save(tmp_path / "a.png")
    dropped = next(block for block in page.blocks.values() if getattr(block, "label", None) == "Image")
    given = dropped.preprocess(gradio.components.image.ImageData(path=str(tmp_path / "a.png")))
    shown, *_ = find(given, "", "")
    assert Counter(shown.get_flattened_data()).most_common(1)[0][0] == (255, 255, 255)


def test_nothing_and_bad_words_are_said_on_the_page(find, gradio):
    image = Image.effect_noise((96, 64), 80).convert("RGB")
    assert find(image, None, None)[2]
    for prompt, labels, told in (("a <|im_end|>", "", "plain words"), ("", "<|coord_1|>", "control token")):
        with pytest.raises(gradio.Error, match=told):
            find(image, prompt, labels)
    with pytest.raises(gradio.Error, match="aspect ratio"):
        find(Image.new("RGB", (1000, 2)), "", "")


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", None), ("256.1.1.1", 7860), ("no such host", 7860)])
def test_address_that_cannot_be_listened_at_is_named(host, port, gradio):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = port or taken.getsockname()[1]
        with pytest.raises(InputError, match=f"--host {host} --port {port}"):
            serve_demo(Detector(AnsweringModel(object(), tiny_config())), host, port)
