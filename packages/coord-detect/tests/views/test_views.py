"""Every view shows what it says, and boxes and shapes return to where they are in the image."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
from coco_document import coco_document
from fakes import card_of
from PIL import Image
from safetensors.numpy import save_file

import coord_eval
from coord_adapter import weights_digest
from coord_codec import InputError, Object, encode_target
from coord_codec.records import Instance
from coord_detect import Detector
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.finish import Finish
from coord_detect.answers.records import prediction_records
from coord_detect.detection.calibrate import Seen, refuse_trained_images, trained_images, write_calibration
from coord_detect.detection.image_sources import find_sources
from coord_detect.model.card import CARD_FILE, calibration_key, read_card
from coord_detect.model.checkpoints import is_complete, mark_complete
from coord_detect.settings.load import load_settings
from coord_detect.settings.record import Settings
from coord_detect.views.asking import answer_views, looks_of
from coord_detect.views.mirror import Mirror
from coord_detect.views.registry import VIEWS, check_views, register_view, views_of
from coord_detect.views.sides import names_a_side
from coord_detect.views.view import Look, Question, in_image
from coord_eval import ScoredObject
from coord_eval.calibration.calibration import Calibration
from coord_eval.metrics.thresholds import ThresholdCurve

SIZE = (96, 64)
OWN = [Look(turns=1), Look(crop=(16, 8, 80, 48), mirrored=True, turns=3), Look(crop=(16, 8, 80, 48), turns=2)]


def painted(box):
    """An image that is white inside a box of whole pixels."""
    image = Image.new("L", SIZE)
    image.paste(255, box)
    return image


def white_box(image):
    """The box around the white pixels in [0, 1], found by looking at the pixels."""
    rows, columns = np.nonzero(np.asarray(image) > 127)
    width, height = image.size
    return columns.min() / width, rows.min() / height, (columns.max() + 1) / width, (rows.max() + 1) / height


@pytest.mark.parametrize("box", [(0, 0, 24, 16), (72, 48, 96, 64), (32, 24, 56, 40)])
@pytest.mark.parametrize("word", ["mirror", "scale:2", "scale:0.5", "tiles:64x40", "tiles:96x40", "classes", *OWN])
def test_box_returns_exactly_to_where_it_is(word, box):
    looks = (
        [word]
        if isinstance(word, Look)
        else [look for _, look in looks_of([word], *SIZE, Question("?", labels=("a",)))]
    )
    whole = 0
    for look in looks:
        left, top, right, bottom = look.crop or (0, 0, *SIZE)
        if not (left <= box[0] and top <= box[1] and box[2] <= right and box[3] <= bottom):
            continue
        whole += 1
        found = ScoredObject("a", white_box(look.show(painted(box))), (), (0, 0), score=0.5)
        expected = [side / length for side, length in zip(box, SIZE * 2, strict=True)]
        assert in_image(found, look.back(*SIZE)).box == pytest.approx(expected, abs=1e-12)
    assert whole or (box[0] > 32 or isinstance(word, Look))


@pytest.mark.parametrize("size", [(1920, 1080), (641, 1300), (3840, 2160), (100, 50)])
@pytest.mark.parametrize("word", ["tiles:640x480", "tiles:640x640:0.1", "tiles:auto"])
def test_tiles_cover_the_image_with_their_overlap(word, size):
    (tiles,) = views_of([word])
    crops = [look.crop for look in tiles.looks(*size, Question("?"))]
    if not crops:
        side = tiles.size or (1024, 1024)
        assert size[0] <= side[0] and size[1] <= side[1]
        return
    seen = np.zeros(size[::-1], bool)
    for left, top, right, bottom in crops:
        assert 0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]
        seen[top:bottom, left:right] = True
    assert seen.all()
    for low, high in ((0, 2), (1, 3)):
        spans = sorted({(crop[low], crop[high]) for crop in crops})
        for (a, b), (c, _) in pairwise(spans):
            assert b - c >= tiles.overlap * (b - a) - 1


def test_tiles_are_as_large_as_the_model_sees_unreduced():
    (tiles,) = views_of(["tiles:auto"])
    assert tiles.looks(600, 300, Question("?", max_pixels=65536))[0].crop == (0, 0, 256, 256)
    assert tiles.looks(256, 256, Question("?", max_pixels=65536)) == []  # the image itself is asked already
    assert len(tiles.looks(257, 256, Question("?", max_pixels=65536))) == 2


@pytest.mark.parametrize(
    ("word", "size", "most", "expected"),
    [
        ("tiles:96x64", (96, 64), None, 0),  # the image itself is asked about already
        ("tiles:200x200", (96, 64), None, 0),
        ("tiles:95x64", (96, 64), None, 2),
        ("tiles:96x63", (96, 64), None, 2),
        ("tiles:48x64:.0", (96, 64), None, 2),
        ("tiles:auto", (1024, 1024), None, 0),
        ("tiles:auto", (1025, 10), None, 2),
        ("tiles:auto", (64, 64), 64 * 64, 0),
        ("tiles:auto", (65, 64), 64 * 64, 2),
        ("tiles:auto", (1025, 10), 4096 * 4096, 2),
    ],
)
def test_tiles_are_asked_about_only_where_there_are_several(word, size, most, expected):
    assert len(looks_of([word], *size, Question("p", max_pixels=most))) == expected


def test_answer_to_a_view_says_what_was_shown_and_asked():
    """What coord_eval brings its boxes back into the image by, and which question it answers."""
    question = Question("p", "find {classes}", ("cat",))

    def ask(images, prompt, pixels):
        return [{"text": f"{prompt} {image.size}", "finish_reason": "stop"} for image in images]

    image = Image.new("RGB", (60, 40))
    (found,) = answer_views(["tiles:40x40", "classes", "mirror"], [image], question, ask, 2)
    plain = {"finish_reason": "stop"}
    assert found == plain | {
        "text": "None (60, 40)",
        "views": [
            plain | {"view": "tiles:40x40", "text": "None (40, 40)", "tile": [0, 0, 40, 40]},
            plain | {"view": "tiles:40x40", "text": "None (40, 40)", "tile": [20, 0, 40, 40]},
            plain | {"view": "classes", "text": "find cat (60, 40)", "prompt": "find cat"},
            plain | {"view": "mirror", "text": "None (60, 40)"},
        ],
    }
    assert answer_views([], [image], question, ask, 2) == [plain | {"text": "None (60, 40)"}]


@pytest.mark.parametrize(
    ("size", "most", "expected"),
    [((60, 40), None, (90, 60)), ((60, 40), 2400, (90, 60)), ((60, 40), 600, (45, 30)), ((1, 1), None, (2, 2))],
)
def test_scale_is_of_the_image_as_the_model_sees_it(size, most, expected):
    ((_, look),) = looks_of(["scale:1.5"], *size, Question("p", max_pixels=most))
    assert (look.size, look.pixels) == (expected, 2.25)
    ((_, look),) = looks_of(["scale:0.1"], 3, 3, Question("p"))
    assert look.size == (1, 1)


def test_enlarged_image_may_have_so_many_more_pixels():
    for factor in (0.1, 2.0, 10.0):
        (scale,) = views_of([f"scale:{factor}"])
        assert [look.pixels for look in scale.looks(600, 300, Question("?"))] == [factor**2]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("upwards", "expected views such as mirror"),
        ("mirror:2", "without an argument"),
        ("scale", "expected a factor"),
        ("scale:1", "other than 1"),
        ("tiles:0x5", "width and height"),
        ("mirror,mirror", "each view once"),
        ("scale:1.5,scale:1.50", "each view once"),
    ],
)
def test_word_that_is_no_view_is_refused_with_what_was_expected(word, told):
    with pytest.raises(InputError, match=told):
        load_settings(Settings, None, [f"evaluation.views=[{word}]"])


def test_borders_of_factors_and_overlaps_are_taken_and_what_lies_beyond_is_not():
    for word, beyond in (
        ("scale:0.1", "scale:0.0999"),
        ("scale:10", "scale:10.01"),
        ("tiles:8x8:.9", "tiles:8x8:.901"),
    ):
        assert len(views_of([word])) == 1
        with pytest.raises(ValueError, match=f"{beyond}: expected"):
            views_of([beyond])
    with pytest.raises(ValueError, match="each view once"):
        views_of(["scale:2", "mirror", "scale:2.0"])


@pytest.mark.parametrize(
    ("text", "names"),
    [("Left", True), ("RIGHT hand", True), ("turn_left", True), ("leftEye", True), ("rightarm", True), ("", False),
     ("a Bright copyright", False), ("playwright", False), ("a bright left shoe", True), ("upRight", False),
     ("aright", True), ("cat", False)],
)  # fmt: skip
def test_side_is_named_in_any_case_and_not_within_a_word_that_means_another_thing(text, names):
    assert names_a_side(text) is names
    assert (Mirror().objection(Question("?", labels=("cat", text))) is not None) is names
    assert (Mirror().objection(Question(text)) is not None) is names and Mirror().keeps(text) is not names


@pytest.mark.parametrize(
    ("words", "question", "told"),
    [
        (["mirror"], Question("Find the left cat"), "names a side"),
        (["mirror"], Question("?", labels=("right shoe",)), "names a side"),
        (["mirror"], Question("?", geometry="keypoints"), "only boxes are fused"),
        (["classes"], Question("?"), "no labels are known"),
    ],
)
def test_view_that_does_not_suit_the_question_is_refused(words, question, told):
    with pytest.raises(InputError, match=told):
        check_views(words, question)
    check_views(["mirror"], Question("the bright upright piano", labels=("copyright",)))


class SeeingEngine:
    """Finds the white rectangle of each image that it is shown, as a model that is always right would."""

    name, max_new_tokens, concurrency = "seeing", 64, 0

    def __init__(self, label="cat"):
        self.label, self.batches = label, []

    def answer(self, images, prompt=None, pixels=1.0):
        self.batches.append((len(images), prompt, pixels))
        answers = []
        for image in images:
            objects = []
            if (np.asarray(image.convert("L")) > 127).any():
                objects = [Object(desc=self.label, bbox=white_box(image.convert("L")))]
            answers.append({"text": encode_target(Instance(image="x", objects=objects)), "finish_reason": "stop"})
        return answers


def records(folder, engine, *views, **options):
    config = Settings(evaluation={"views": list(views)})
    detector = AnsweringModel(engine, config, names=("cat",), **options)
    sources = find_sources([str(folder)])
    return [record for batch in prediction_records(detector, sources.images, 4) for record in batch]


@pytest.fixture
def folder(tmp_path):
    """The same picture twice: as it is, and lying on its side with an EXIF orientation that turns it upright."""
    image = painted((72, 16, 96, 48)).convert("RGB")
    place = tmp_path / "photos"
    place.mkdir()
    image.save(place / "a.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the viewer turns it clockwise
    image.transpose(Image.Transpose.ROTATE_90).save(place / "b.png", exif=exif)
    return place


@pytest.mark.parametrize("views", [["mirror"], ["scale:1.25"], ["tiles:64x48"], ["classes"], ["mirror", "tiles:64x48"]])
def test_views_agree_on_one_box_with_exif_too(folder, views):
    engine = SeeingEngine()
    for record in records(folder, engine, *views):
        (found,) = record["objects"]
        assert found["bbox_xyxy"] == pytest.approx([72, 16, 96, 48], abs=0.2)  # of a bin
        looks = len(looks_of(views, 96, 64, Question("?", labels=("cat",))))
        assert len(record["views"]) == looks and {row["view"] for row in record["views"]} == set(views)
        assert record["fused"]["views"].keys() == {"image", *views} and record["fused"]["objects"] == 1
        json.dumps(record)
    assert max(count for count, *_ in engine.batches) <= 4
    assert ("classes" in views) == any(prompt for _, prompt, _ in engine.batches)


def test_questions_about_one_image_are_one_view_and_the_image_weighs_more(monkeypatch):
    answer = SeeingEngine().answer([painted((72, 16, 96, 48))])[0]
    record = {"image_id": 1, "width": 96, "height": 64, **answer, "views": [{"view": "classes", **answer}] * 2}
    seen, own = [], coord_eval.fuse
    monkeypatch.setattr(coord_eval, "fuse", lambda views, **how: seen.append((views, how)) or own(views, **how))
    Finish(("classes",), Question("?", labels=("cat", "dog"))).objects(record)
    ((views, how),) = seen
    assert [len(view) for view in views] == [1, 2] and how["weights"] == [1.5, 1.0]
    tiles = {**record, "views": [{"view": "tiles:64x64", **answer}] * 2}
    Finish(("tiles:64x64",)).objects(tiles)  # each has a place of its own
    views, how = seen[1]
    assert [len(view) for view in views] == [1, 1, 1] and how["weights"] == [1.5, 1.0, 1.0]
    assert how["regions"] == [(0, 0, 1, 1), (0, 0, 2 / 3, 1), (1 / 3, 0, 1, 1)]


def test_concurrent_engine_is_asked_about_one_view_at_a_time(folder):
    """Since other images are asked about beside it, and the number of requests is limited."""
    engine = SeeingEngine()
    engine.concurrency = 2
    assert [len(record["objects"]) for record in records(folder, engine, "mirror", "tiles:64x48")] == [1, 1]
    assert {count for count, *_ in engine.batches} == {1}


def test_mirrored_label_that_names_a_side_is_left_out_and_counted(folder):
    for record in records(folder, SeeingEngine("left shoe"), "mirror"):
        assert record["fused"]["names_a_side"] == 1 and record["fused"]["views"]["mirror"]["boxes"] == 0


def test_image_without_an_answer_to_one_view_has_none(folder):
    class Refusing(SeeingEngine):
        def answer(self, images, prompt=None, pixels=1.0):
            if prompt is not None:
                return [{"text": None, "finish_reason": "error", "error": "busy"} for _ in images]
            return super().answer(images)

    for record in records(folder, Refusing(), "classes"):
        assert record["finish_reason"] == "error" and record["error"] == "classes: busy"


def test_threshold_needs_a_calibration_or_a_score(folder):
    finish = Finish(("mirror",), Question("?"))
    with pytest.raises(InputError, match="coord-detect calibrate MODEL ANNOTATIONS --views mirror"):
        finish.with_threshold(precision=0.9)
    with pytest.raises(InputError, match="min_score and recall"):
        finish.with_threshold(min_score=0.1, recall=0.9)
    config = Settings()
    for least, kept in ((0.5, 1), (1.0, 1)):
        detector = AnsweringModel(SeeingEngine(), config).with_threshold(min_score=least)
        assert len(Detector(detector).predict(folder / "a.png")) == kept
    assert AnsweringModel(SeeingEngine(), config).with_threshold(min_score=0.0).finish.changes is False


def test_trained_images_are_refused_by_path_and_by_content(folder, tmp_path):
    sources = find_sources([str(folder)])
    copy = tmp_path / "copy.png"
    copy.write_bytes((folder / "a.png").read_bytes())
    for path in (folder / "a.png", copy):
        with pytest.raises(InputError, match=r"1 image of 2 are among those .* a\.png first"):
            refuse_trained_images(sources, Seen(frozenset({path.resolve()})))
    other = tmp_path / "other.png"
    other.write_bytes(copy.read_bytes()[:-1] + b"-")
    refuse_trained_images(sources, Seen(frozenset({other, tmp_path / "elsewhere.png"})))


@pytest.mark.parametrize(("place", "is_known"), [("", True), ("checkpoints", True), ("kept/checkpoints", False)])
def test_trained_images_are_those_of_the_run_folder_around_a_checkpoint(folder, tmp_path, place, is_known):
    image = {"id": 1, "file_name": "a.png", "width": SIZE[0], "height": SIZE[1]}
    document = coco_document([{"bbox": [72, 16, 24, 32]}], [image])
    (tmp_path / "a.json").write_text(json.dumps(document))
    data = {"annotations": str(tmp_path / "a.json"), "images": str(folder)}
    (tmp_path / "config.yaml").write_text(json.dumps({"data": data}))
    seen = trained_images(tmp_path / place / "checkpoint-1")
    assert (seen.paths == {(folder / "a.png").resolve()}) == is_known == (not seen.unknown)


def test_view_of_ones_own_is_a_row(folder):
    class Upside(Mirror):
        name = example = "upside"
        about = "the image upside down"

        def looks(self, width, height, question):
            return [Look(turns=2)]

    with pytest.raises(ValueError, match="one of this name already"):
        register_view(type("Other", (Mirror,), {"example": "mirror"}))
    for wrong, told in (({"name": "a:b"}, "without a colon"), ({"name": "wry", "example": "wry:2"}, "without an argu")):
        with pytest.raises(ValueError, match=told):
            register_view(type("Wrong", (Mirror,), wrong))
    register_view(Upside)
    try:
        for record in records(folder, SeeingEngine(), "upside"):
            (found,) = record["objects"]
            assert found["bbox_xyxy"] == pytest.approx([72, 16, 96, 48], abs=0.2)
    finally:
        VIEWS.remove("upside")


def test_calibration_is_kept_in_the_card_for_its_views_and_used_for_them(folder, tmp_path):
    """The map is a straight line here, so that its values are known."""
    line = Calibration(((0.0, 0.0), (1.0, 0.5)), "constant", ThresholdCurve((), (), {}), rests_on={"images": 20})
    checkpoint = tmp_path / "checkpoint-1"
    checkpoint.mkdir()
    config = Settings(evaluation={"views": ["mirror"]})
    card_of(config).write(checkpoint)
    mark_complete(checkpoint)
    keys = [calibration_key(config.evaluation.decoding[0], views) for views in (["classes"], ["mirror"])]
    for key in keys:
        write_calibration(checkpoint, key, line)
    assert is_complete(checkpoint)
    card = read_card(checkpoint)
    assert [*card.calibrations] == keys
    assert card.model_copy(update={"calibrations": {}}) == card_of(config)
    detector = AnsweringModel(SeeingEngine(), config, names=("cat",)).calibrated_as(checkpoint)
    assert detector.calibration.to_dict() == line.to_dict()
    (found,) = Detector(detector).predict(folder / "a.png")
    assert found.score == pytest.approx(0.5, abs=1e-3)  # half of 1, and a thousandth of the score itself
    plain = Settings()
    without = AnsweringModel(SeeingEngine(), plain).calibrated_as(checkpoint)
    assert without.calibration is None and "not calibrated" in without.uncalibrated and not detector.uncalibrated


def test_calibration_is_refused_for_other_weights_and_kept_by_a_merge(tmp_path):
    line = Calibration(((0.0, 0.0), (1.0, 0.5)), "constant", ThresholdCurve((), (), {}))
    config = Settings()
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, value in ((one, 1), (other, 2)):
        folder.mkdir()
        save_file({"w": np.full(3, value)}, folder / "adapter_model.safetensors")
    card_of(config).write(one)
    write_calibration(one, calibration_key(config.evaluation.decoding[0], []), line)
    detector = AnsweringModel(SeeingEngine(), config)
    assert detector.calibrated_as(one).calibration is not None
    shutil.copy(one / CARD_FILE, other)
    with pytest.raises(InputError, match="calibrations: expected one of these weights"):
        detector.calibrated_as(other)
    record = {"history": [{"kind": "merge", "adapter": {"weights": weights_digest(one)}}]}
    expanded, merged = {"kind": "expand"}, record["history"][0]
    for history in ([merged], [expanded, merged]):
        (other / "export.json").write_text(json.dumps({"history": history}))
        assert detector.calibrated_as(other).calibration is not None
    for history in ([merged, expanded], [merged, {"kind": "merge", "adapter": {"weights": "another"}}], []):
        (other / "export.json").write_text(json.dumps({"history": history}))
        with pytest.raises(InputError, match="calibrations: expected one of these weights"):
            detector.calibrated_as(other)
