"""A model that answers: batches that fail, what is asked, labels, and the shares of threads."""

from dataclasses import replace

import pytest
from fakes import RuleEngine, detector
from PIL import Image

from coord_codec import InputError
from coord_detect.answers.answering_model import check_labels
from coord_detect.answers.records import _batches, _concurrently, sources_of
from coord_detect.views.view import Question

IMAGES = [Image.new("RGB", (n, 1)) for n in range(1, 8)]


class Fragile(RuleEngine):
    """Fails with every batch that has an image of three or five pixels; remembers what it was given."""

    error = ValueError("too thin\nmore")

    def answer(self, images, *words):
        self.batches.append(([image.width for image in images], *words))
        if {3, 5} & {image.width for image in images}:
            raise self.error
        return [{"text": str(image.width), "finish_reason": "stop"} for image in images]


@pytest.mark.parametrize("error", [ValueError("too thin\nmore"), MemoryError()])
def test_image_at_fault_alone_has_no_answer_and_others_keep_their_places(error):
    engine = Fragile()
    engine.error = error
    found = detector(engine).answers(IMAGES)
    assert [answer["text"] for answer in found] == ["1", "2", None, "4", None, "6", "7"]
    assert {answer["error"] for answer in found if answer["text"] is None} == {
        "too thin" if str(error) else "MemoryError"
    }
    engine.error = InputError("settings")
    with pytest.raises(InputError, match="settings"):
        detector(engine).answers(IMAGES)


def test_images_and_views_are_answered_together_up_to_a_number(monkeypatch):
    engine = RuleEngine()
    plain, mirrored = detector(engine), detector(engine, "evaluation.views=[mirror]")
    for model, images, at_once, sizes in (
        (plain, [], None, []),
        (plain, IMAGES, None, [7]),
        (plain, IMAGES, 3, [3, 3, 1]),
        (mirrored, IMAGES[:2], None, [4]),  # at least eight, though there are two images
        (mirrored, IMAGES, None, [8, 6]),
        (mirrored, IMAGES * 2, None, [14, 14]),
        (mirrored, IMAGES[:2], 1, [1, 1, 1, 1]),
    ):
        engine.batches.clear()
        assert len(model.answers(images, at_once)) == len(images)
        assert [len(batch) for batch in engine.batches] == sizes


def test_prompt_and_factor_reach_the_engine_where_they_are_not_the_usual():
    engine = Fragile()
    ask = detector(engine)._answers
    for prompt, pixels in ((None, 1), ("Where?", 1), (None, 1.5), ("Where?", 2.0)):
        ask(IMAGES[:1], prompt, pixels)
    assert [words for _, *words in engine.batches] == [[], ["Where?", 1], [None, 1.5], ["Where?", 2.0]]


def test_question_asks_for_forced_names_before_known_ones_before_kept_labels():
    model = replace(detector(), labels=frozenset({"kept"}))
    for names, only, asked in (((), (), "kept"), (("known",), (), "known"), (("known",), ("forced",), "forced")):
        found = replace(model, names=names, only=frozenset(only)).finish
        assert found.question.labels == (asked,) and found.labels == {"kept"}
    engine = RuleEngine()
    given = detector(engine, "data.max_pixels=5000", "data.prompt=Where?", "data.class_prompt=Any {classes}?")
    assert given.finish.question == Question("Where?", "Any {classes}?", (), "box", 5000)
    engine.max_pixels = 900  # what the processor makes of it
    assert given.finish.question.max_pixels == 900


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ("cat", "put it into a list"),
        (["cat", 3], "expected text, found int"),
        ([" cat"], "one line"),
        (["two\nlines"], "one line"),
        ([""], "label ''"),
        (["<|box_end|>"], "control token"),
    ],
)
def test_label_that_no_answer_can_have_is_refused(labels, told):
    with pytest.raises(InputError, match=told):
        check_labels(labels)
    assert check_labels(["dog", "cat", "dog"]) == ("cat", "dog") and check_labels([]) == ()


def test_labels_of_a_call_replace_those_of_the_model_and_none_of_them_keeps_all():
    model = replace(detector(), labels=frozenset({"cat"}))
    for given, kept in ((None, {"cat"}), (["dog"], {"dog"}), ([], set())):
        assert model.asking(labels=given).labels == kept
    assert model.asking(views=["mirror"]).config.evaluation.views == ("mirror",)
    assert model.asking(views=["mirror"]).asking(views=[]).config.evaluation.views == ()
    for given in ({"prompt": "Where?"}, {"only": ["cat"]}):
        with pytest.raises(InputError, match="behind an endpoint"):
            model.asking(**given)


def test_batches_have_images_of_similar_size_and_each_once():
    sources = [(str(pixels), pixels) for pixels in (100, 10_000, 101, 1, 9_900, 102, 103, 50)]
    found = list(_batches(sources, 3))
    assert sorted(name for batch in found for name in batch) == sorted(name for name, _ in sources)
    for batch in found:
        sizes = [int(name) for name in batch]
        assert len(batch) <= 3 and max(sizes) < 1.15 * min(sizes) + 1e-9
    assert len(found) == 5


def test_work_of_threads_is_done_once_and_an_error_ends_it():
    done = []
    assert sorted(_concurrently(lambda n: done.append(n) or n * n, range(20), 3)) == [n * n for n in range(20)]
    assert sorted(done) == list(range(20)) and list(_concurrently(str, [], 4)) == []

    def fail(n):
        raise KeyError(n)

    with pytest.raises(KeyError):
        list(_concurrently(fail, range(3), 2))


def test_images_without_an_id_have_their_place_and_an_id_of_0_is_one(tmp_path):
    from coord_codec import Instance, read_annotations
    from coord_data.reading.image_set import ImageSet

    ids = [7, None, 0, None]
    records = [Instance(image=f"{n}.png", image_id=i, width=1, height=1, objects=[]) for n, i in enumerate(ids)]
    images = ImageSet("x", read_annotations(records), tmp_path, "d", {"1.png": IMAGES[0]})
    assert [source.image_id for source in sources_of(images)] == [7, 1, 0, 3]
    assert [source.held is not None for source in sources_of(images)] == [False, True, False, False]
    assert [source.path for source in sources_of(images, 2)] == [tmp_path / "0.png", tmp_path / "1.png"]
