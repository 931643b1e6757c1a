"""`Detector` in Python: what its users write, and what is said where another library has another name."""

import json
from pathlib import Path

import numpy as np
import pytest
from fakes import BOX, TEXT, RuleEngine, card_of, chat_reply, make_images, served
from fakes import detector as answering
from PIL import Image

from coord_codec import InputError, Object, encode_target
from coord_codec.records import Instance
from coord_detect import Detector
from coord_detect.model.card import read_card
from coord_detect.settings.record import Settings
from coord_eval import score

SIZE = (40, 20)
PIXELS = [BOX[0] * 40, BOX[1] * 20, BOX[2] * 40, BOX[3] * 20]


class Naming(RuleEngine):
    """Answers each image with the labels that it is told next, all in one place."""

    def answer(self, images):
        self.batches.append(len(images))
        texts = []
        for _ in images:
            objects = [Object(desc=label, bbox=BOX) for label in self.labels.pop(0)]
            texts.append(encode_target(Instance(image="x", objects=objects)))
        return [
            {"text": text, "finish_reason": "stop", "coord_logprobs": [-0.1] * text.count("<|coord_")} for text in texts
        ]


def naming(*labels, names=("cat", "dog")):
    engine = Naming()
    engine.labels = list(labels)
    return Detector(answering(engine), names=names)


@pytest.fixture
def photo(tmp_path):
    make_images(tmp_path / "photos", a=SIZE, b=SIZE, c=SIZE)
    return tmp_path / "photos" / "a.png"


@pytest.fixture
def found(photo):
    return naming(["dog", "cat"]).predict(photo)


def test_result_has_arrays_labels_and_plain_values(found):
    assert (len(found), found.labels, found.size) == (2, ["dog", "cat"], SIZE)
    np.testing.assert_allclose(found.boxes_xyxy, [PIXELS, PIXELS])
    assert found.boxes_xyxy.shape == (2, 4) and found.scores.shape == (2,) and 0 < found.scores.min() <= 1
    assert found.class_ids.tolist() == [1, 0] and [item.label for item in found] == found.labels
    record = json.loads(found.to_json())
    assert record == found.to_dict()
    assert [(row["desc"], row["class_id"]) for row in record["objects"]] == [("dog", 1), ("cat", 0)]
    results = found.to_coco(image_id=7)
    x1, y1, x2, y2 = PIXELS
    assert [(row["image_id"], row["category_id"]) for row in results] == [(7, 2), (7, 1)]
    np.testing.assert_allclose(results[0]["bbox"], [x1, y1, x2 - x1, y2 - y1])
    assert [row["category_id"] for row in found.to_coco(categories={"cat": 17})] == [17]


def test_result_without_objects_has_empty_arrays(photo):
    found = naming([]).predict(photo)
    assert (found.boxes_xyxy.shape, found.scores.shape, found.class_ids.shape) == ((0, 4), (0,), (0,))
    assert found.to_coco() == [] and len(found.to_pandas()) == 0


def test_table_of_pandas_has_a_row_for_each_object(found):
    table = found.to_pandas()
    assert list(table.columns) == ["image", "label", "class_id", "score", "x1", "y1", "x2", "y2"]
    assert table.label.tolist() == ["dog", "cat"] and table.x2.tolist() == [PIXELS[2]] * 2


def test_class_ids_are_those_of_the_training_in_every_image_and_others_follow(photo):
    detector = naming(["dog"], ["zebra", "cat"], ["ant", "zebra"], ["ant"])
    first, second, third = detector.predict([photo] * 3, progress=False)
    assert detector.names[:2] == ("cat", "dog")
    assert [r.class_ids.tolist() for r in (first, second, third)] == [[1], [2, 0], [3, 2]]
    assert detector.names == ("cat", "dog", "zebra", "ant")
    assert detector(photo).class_ids.tolist() == [3]


def test_names_are_those_of_the_card(tmp_path):
    ready = answering()
    card_of(names=("b", "a")).write(tmp_path)
    assert read_card(tmp_path).names == ("b", "a")
    from dataclasses import replace

    assert Detector(replace(ready, folder=tmp_path)).names == ("b", "a")


def test_one_image_gives_one_result_and_several_give_a_sequence(photo):
    image, folder = Image.open(photo), photo.parent
    detector = Detector(answering())
    for one in (photo, str(photo), image, np.asarray(image), np.asarray(image)[..., ::-1]):
        assert detector.predict(one).labels == ["cat"]
    ways = (folder, f"{folder}/*.png", [photo] * 3, (image,) * 3, np.stack([np.asarray(image)] * 3), [folder])
    for several in ways:
        results = detector.predict(several, progress=False)
        assert (len(results), results[-1].labels, [r.labels for r in results]) == (3, ["cat"], [["cat"]] * 3)
        assert results.to_pandas().label.tolist() == ["cat"] * 3
        assert [row["image_id"] for row in results.to_coco()] == [1, 2, 3]
    assert [r.name for r in detector.predict(folder, progress=False)] == [str(folder / f"{n}.png") for n in "abc"]


def test_results_score_as_they_stand_and_as_a_results_list(photo):
    """The ids of the annotations are others than those of the detector: names count."""
    folder = photo.parent
    results = naming(*[["cat"]] * 3).predict(folder, progress=False)
    x1, y1, x2, y2 = PIXELS
    size = dict(zip(("width", "height"), SIZE, strict=True))
    truth = {
        "images": [{"id": 9 - n, "file_name": f"{name}.png", **size} for n, name in enumerate("abc")],
        "categories": [{"id": 1, "name": "ant"}, {"id": 44, "name": "cat"}],
        "annotations": [
            {"id": n + 1, "image_id": 9 - n, "category_id": 44, "bbox": [x1, y1, x2 - x1, y2 - y1]} for n in range(3)
        ],
    }
    rows = results.to_coco()
    assert [row["file_name"] for row in rows] == ["a.png", "b.png", "c.png"]
    assert {(row["category_id"], row["category_name"]) for row in rows} == {(1, "cat")}
    for predictions in (results, rows, json.loads(json.dumps(rows))):
        assert score(truth, predictions)["AP"] == pytest.approx(1)


def test_images_are_answered_while_results_are_read(photo):
    engine, taken = RuleEngine(), []

    def frames():
        for number in range(7):
            taken.append(number)
            yield Image.new("RGB", SIZE)

    results = Detector(answering(engine)).predict(frames(), batch=3, progress=False)
    assert not taken
    next(results)
    assert taken == [0, 1, 2] and [len(batch) for batch in engine.batches] == [3]
    assert len(list(results)) == 6 and [len(batch) for batch in engine.batches] == [3, 3, 1]
    listed = Detector(answering(engine)).predict([photo] * 4, batch=2, progress=False)
    assert listed[1].labels == listed[0].labels and [len(batch) for batch in engine.batches[3:]] == [2]


def test_progress_of_several_images_is_shown_unless_it_is_not_wanted(photo, capsys):
    detector = Detector(answering())
    list(detector.predict([photo] * 2))
    assert "2/2" in capsys.readouterr().err
    list(detector.predict([photo] * 2, progress=False))
    detector.predict(photo)
    assert capsys.readouterr().err == ""


def test_image_that_cannot_be_answered_has_an_error_among_several_and_raises_alone(photo, capsys):
    (photo.parent / "b.png").write_bytes(b"no image")
    results = Detector(answering()).predict([photo, photo.parent / "b.png", Image.open(photo)], progress=False)
    assert [bool(r.error) for r in results] == [False, True, False]
    assert "1 image has no answer" in (told := capsys.readouterr().out) and "b.png" in told
    with pytest.raises(InputError, match=r"b\.png: "):
        Detector(answering()).predict(photo.parent / "b.png")


def test_least_score_of_a_call_is_that_of_the_call(photo):
    detector = naming(["dog"], ["dog"], ["dog"])
    score = detector.predict(photo).scores[0]
    assert len(detector.predict(photo, min_score=score + 0.01)) == 0
    assert len(detector.predict(photo)) == 1


def test_least_score_of_a_detector_is_that_of_its_calls_and_stands_on_its_card(photo):
    ready = naming(*[["cat"]] * 9).model
    score = Detector(ready).predict(photo).scores[0]
    for least, count in ((score, 1), (score + 0.01, 0)):
        detector = Detector(ready, min_score=least)
        assert len(detector.predict(photo)) == count and f"least score: {least:.4g}" in str(detector)
        assert len(detector.predict(photo, min_score=0)) == 1
    assert "least score" not in str(Detector(answering()))
    for wanted in ({"precision": 0.9}, {"recall": 0.9}):
        with pytest.raises(InputError, match="calibrat"):
            Detector(answering(), **wanted)


def test_image_of_a_list_may_have_any_name_and_a_folder_stands_for_its_images(photo):
    odd = photo.rename(photo.with_suffix(".photo"))
    results = Detector(answering()).predict([odd, photo.parent], progress=False)
    assert [Path(r.name).name for r in results] == ["a.photo", "b.png", "c.png"]
    assert not any(r.error for r in results)


def test_saved_files_are_named_after_the_image_and_replace_nothing_else(found, photo, tmp_path):
    path = found.save(tmp_path / "out")
    assert path == tmp_path / "out" / "a.jpg" and json.loads(path.with_suffix(".json").read_text()) == found.to_dict()
    assert found.save(tmp_path / "out") == path and len(list(path.parent.iterdir())) == 2
    path.write_bytes(b"edited")
    assert found.save(tmp_path / "out").name == "a-2.jpg" and path.read_bytes() == b"edited"
    assert Detector(answering()).predict(Image.open(photo)).save(tmp_path / "out").name == "image-0.jpg"


def test_every_image_with_an_answer_is_saved_also_one_without_objects(photo, tmp_path):
    results = naming([], ["cat"]).predict([photo, photo.parent / "b.png", photo.parent / "gone.png"], progress=False)
    assert results.save(tmp_path / "out") == [tmp_path / "out" / "a.jpg", tmp_path / "out" / "b.jpg"]
    assert [row["image_id"] for row in results.to_coco()] == [2]


def test_name_of_a_file_is_a_picture_that_is_not_replaced(found, tmp_path):
    assert found.save(tmp_path / "a.png") == tmp_path / "a.png"
    assert Image.open(tmp_path / "a.png").format == "PNG"
    with pytest.raises(FileExistsError):
        found.save(tmp_path / "a.png")


def test_mask_slice_and_places_choose_objects_with_their_numbers(photo):
    found = naming(["dog", "cat", "dog"]).predict(photo)
    chosen = found[np.array([True, False, True])]
    assert (chosen.labels, chosen.class_ids.tolist()) == (["dog", "dog"], found.class_ids[[0, 2]].tolist())
    assert found[[2, 0]].labels == ["dog", "dog"] and found[1:].labels == ["cat", "dog"] and found[1].label == "cat"
    assert len(found[found.scores > 2]) == 0 and found[found.scores > 0] == found
    with pytest.raises(IndexError):
        found[[True]]


def test_file_of_a_list_that_does_not_exist_has_no_answer(photo):
    first, second = Detector(answering()).predict([photo, photo.parent / "nowhere.jpg"], progress=False)
    assert first.labels and "exist" in second.error
    with pytest.raises(InputError, match=r"nowhere\.jpg"):
        Detector(answering()).predict(photo.parent / "nowhere.jpg")


def test_card_names_model_names_prompt_and_scores():
    card = str(naming(names=[f"class {n}" for n in range(30)]))
    for told in ("rule", "30 (class 0, ", "prompt: Describe all objects", "scores: not calibrated"):
        assert told in card
    assert len(card.splitlines()) < 10


def test_notebook_shows_results_and_detector(found, photo):
    assert found._repr_png_()[:4] == b"\x89PNG"
    html = Detector(answering()).predict([photo] * 8, progress=False)._repr_html_()
    assert html.count("<img") == 6 and "6 of 8" in html
    several = [photo, photo.parent / "gone.png", *[photo] * 6]
    results = Detector(answering()).predict(several, batch=2, progress=False)
    assert results._repr_html_().count("<img") == 5 and repr(results) == "<Results: 8 images, 6 answered yet>"
    assert "Describe all" in Detector(answering())._repr_html_()


def test_supervision_has_the_same_classes_in_every_image(photo):
    sv = pytest.importorskip("supervision", reason="pip install supervision")
    results = naming(["dog", "cat"], [], ["dog"]).predict([photo] * 3, progress=False)
    merged = sv.Detections.merge([found.to_supervision() for found in results])
    assert merged.class_id.tolist() == [1, 0, 1] and merged.data["class_name"].tolist() == ["dog", "cat", "dog"]
    np.testing.assert_allclose(merged.xyxy, [PIXELS] * 3)
    for read in (sv.Detections.from_ultralytics, sv.Detections.from_transformers, sv.Detections.from_inference):
        with pytest.raises((AttributeError, TypeError), match=r"to_supervision|boxes_xyxy|to_dict"):
            read(results[0])


WORKS = {
    "Detector(path).predict(path)": lambda d, p: d.predict(str(p)),
    "model(path)": lambda d, p: d(str(p)),
    "model([path, path])": lambda d, p: d([p, p], progress=False)[1],
    "for result in model.predict(folder)": lambda d, p: next(iter(d.predict(str(p.parent), progress=False))),
    "model.names": lambda d, p: d.names[0],
    "predict(array)": lambda d, p: d.predict(np.asarray(Image.open(p))),
    "predict(PIL)": lambda d, p: d.predict(Image.open(p)),
    "result.to_json()": lambda d, p: d(p).to_json(),
    "result.save(folder)": lambda d, p: d(p).save(p.parent / "out"),
}
NAMED = {
    "results[0].boxes.xyxy": (lambda d, p: d(p)[0].boxes.xyxy, "boxes_xyxy"),
    "results.boxes.conf": (lambda d, p: d(p).boxes.conf, "scores"),
    "results of several .boxes": (lambda d, p: d([p], progress=False)[0].boxes.cls, "class_ids"),
    "results.plot()": (lambda d, p: d(p).plot(), "drawn"),
    "results.xyxy": (lambda d, p: d(p).xyxy, "boxes_xyxy"),
    "detections.class_id": (lambda d, p: d(p).class_id, "class_ids"),
    "detections.confidence": (lambda d, p: d(p).confidence, "scores"),
    'results["boxes"]': (lambda d, p: d(p)["boxes"], "boxes_xyxy"),
    "results.pandas()": (lambda d, p: d(p).pandas(), "to_pandas"),
    "results of several .show()": (lambda d, p: d([p], progress=False).show(), r"results\[0\]\.show"),
    "predict(conf=)": (lambda d, p: d.predict(p, conf=0.5), "min_score"),
    "predict(threshold=)": (lambda d, p: d.predict(p, threshold=0.5), "min_score"),
    "predict(save=True)": (lambda d, p: d.predict(p, save=True), r"\.save\(folder\)"),
    "predict(stream=True)": (lambda d, p: d.predict(p, stream=True), "while their results are read"),
    "predict(imgsz=)": (lambda d, p: d.predict(p, imgsz=640), "views"),
    "predict(device=)": (lambda d, p: d.predict(p, device="cuda"), "GPU"),
    "Detector.from_pretrained": (lambda d, p: Detector.from_pretrained("runs/a"), r"Detector\(PATH\)"),
    "Detector(pretrain_weights=)": (lambda d, p: Detector("runs/a", pretrain_weights="x"), "first argument"),
    "model.train(data=)": (lambda d, p: d.train(data="coco.yaml", epochs=3), r"coord_trainer\.train"),
    "model.val()": (lambda d, p: d.val(), "evaluate"),
    "model.export()": (lambda d, p: d.export(format="onnx"), "merge"),
    "model.to('cuda')": (lambda d, p: d.to("cuda"), "GPU"),
    "model.track()": (lambda d, p: d.track(p), "to_supervision"),
    "model.class_names": (lambda d, p: d.class_names, r"\.names"),
    "model.optimize_for_inference()": (lambda d, p: d.optimize_for_inference(), "speed"),
    "predict(source=)": (lambda d, p: d.predict(source=p), "first argument"),
    "result[0]['label']": (lambda d, p: d(p)[0]["label"], r"\.label"),
    "model.config.id2label": (lambda d, p: d.config.id2label, r"\.names"),
    "result.with_nms()": (lambda d, p: d(p).with_nms(), "no suppression"),
    "processor.post_process_object_detection": (lambda d, p: d.post_process_object_detection, "pixels"),
}


@pytest.mark.parametrize("call", WORKS.values(), ids=WORKS)
def test_call_that_others_have_works(call, photo):
    assert call(Detector(answering(), names=["cat"]), photo)


@pytest.mark.parametrize(("call", "told"), NAMED.values(), ids=NAMED)
def test_call_that_others_have_is_refused_with_the_one_that_does_it(call, told, photo):
    with pytest.raises((AttributeError, TypeError), match=told):
        call(Detector(answering(), names=["cat"]), photo)


def test_every_key_of_an_object_of_others_is_its_attribute(found):
    ours = {
        "label": ("label", "class", "name"),
        "score": ("score", "confidence"),
        "box": ("box", "bbox", "xyxy", "boxes"),
    }
    for attribute, keys in ours.items():
        for key in keys:
            with pytest.raises(TypeError, match=rf"use \.{attribute}$"):
                found[0][key]
    with pytest.raises(TypeError, match=r"\.label, \.box and \.score"):
        found[0][0]


def test_names_that_nobody_has_are_missing_as_usual(found):
    for thing in (found, found[0], Detector(answering())):
        assert not hasattr(thing, "nothing_of_that_name") and not hasattr(thing, "__wrapped__")


@pytest.mark.parametrize(
    ("words", "named", "told"),
    [
        (("http://localhost:1/v1",), {}, r"Detector\(URL, name=NAME\)"),
        (("http://localhost:1/v1",), {"name": "m", "only": ["cat"]}, "a server states probabilities"),
        (("nowhere",), {"name": "m"}, "^name: it is about a server"),
        (("nowhere",), {"folder": "m"}, "^folder: it is about a server"),
        (("nowhere",), {"grammar": "vllm"}, "^grammar: it is about a server"),
        (("nowhere",), {}, "no such folder"),
        ((["a", "a"],), {}, "expected one folder, or URLs"),
        ((["http://localhost:1/v1", Path("a")],), {"name": "m"}, r"found the list \['a'\]"),
        (([],), {}, "expected one folder"),
        ((3,), {}, "expected a folder, or the URL of a server, found int"),
    ],
)
def test_model_that_cannot_be_set_up_is_told(words, named, told):
    with pytest.raises(InputError, match=told):
        Detector(*words, **named)


def test_served_model_answers_by_its_name(photo, tmp_path):
    with served(lambda number, request: (200, chat_reply(TEXT))) as (url, requests):
        detector = Detector(url, name="my-model")
        assert detector.predict(photo).labels == ["cat"]
        assert [r.labels for r in detector.predict(photo.parent, progress=False)] == [["cat"]] * 3
        assert url in str(detector) and "my-model" in str(detector)
        assert {request["model"] for request in requests} == {"my-model"} and len(requests) == 4
        asked = Detector(url, name="my-model", settings=["data.prompt=Find cats."], views=["mirror"], min_score=0.25)
        (result,) = asked.predict([photo], progress=False)
        assert set(result.fused["views"]) == {"image", "mirror"}
        assert "Find cats." in json.dumps(requests[-1]["messages"]) and len(requests) == 6
        with pytest.raises(InputError, match="config is given as well"):
            Detector(url, name="my-model", settings=["data.prompt=a"], config=Settings())
        assert Detector(url, name="m", config=Settings(), speed="exact").model.config.evaluation.speed == "exact"
