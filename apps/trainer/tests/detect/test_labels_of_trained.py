"""The first run's model asked for labels and held to names: a filter changes nothing, and what is absent scores low."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from first_run import first_run

from coord_codec import InputError
from coord_detect.detection.calibrate import calibrate_model
from coord_detect.model.checkpoints import locate_model
from coord_trainer import Detector
from coord_trainer.config.run_config import load_run_config
from coord_trainer.data.shapes import draw_set, keep

pytestmark = pytest.mark.slow  # training the model takes minutes, once on a machine

NAME = "red circle"


@pytest.fixture(scope="module")
def run():
    return first_run()


@pytest.fixture(scope="module")
def heldout(run):
    """Paths of the 500 held-out images, and of each its names and boxes in pixels."""
    rows = [json.loads(line) for line in (run / "data" / "heldout.jsonl").read_text().splitlines()]
    truth = [[(o["desc"], [v * 96 for v in o["bbox"]]) for o in row["objects"]] for row in rows]
    return [run / "data" / row["image"] for row in rows], truth


@pytest.fixture(scope="module")
def free(run):
    return Detector(run, calibrated=False)


@pytest.fixture(scope="module")
def calibrated(run, tmp_path_factory):
    """The model with maps for all answers, and for those that are held to NAME, from 500 images of another seed."""
    folder = tmp_path_factory.mktemp("calibrated")
    model = shutil.copytree(locate_model(run), folder / "model")
    config = load_run_config(run / "config.yaml", ["data.shapes.seed=77"], trains=False)
    keep(draw_set(config, "heldout", folder / "data"))
    settings = load_run_config(None, [], trains=False)
    for only in ((), (NAME,)):
        calibrate_model(model, folder / "data" / "heldout.jsonl", None, settings, strict=False, only=only)
    return model


def overlap(a, b):
    width, height = (min(a[k + 2], b[k + 2]) - max(a[k], b[k]) for k in (0, 1))
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in (a, b)]
    return width * height / (sum(areas) - width * height)


def judged(results, truth):
    """Score of each box, and whether it is the best one with an IoU above .5 of an object with its label."""
    rows = []
    for found, objects in zip(results, truth, strict=True):
        free_of = set(range(len(objects)))
        for item in sorted(found, key=lambda item: -item.score):
            pairs = [(overlap(item.box, objects[k][1]), k) for k in free_of if objects[k][0] == item.label]
            best, place = max(pairs, default=(0.0, None))
            free_of -= {place} if best > 0.5 else set()
            rows.append((item.score, best > 0.5))
    return np.array(rows)


def calibration_error(rows):
    """The expected calibration error in ten equal bins."""
    bins = np.minimum((rows[:, 0] * 10).astype(int), 9)
    return sum((bins == k).sum() * abs(np.diff(rows[bins == k].mean(axis=0))[0]) for k in set(bins)) / len(rows)


def boxes(found, label=NAME):
    return [(item.label, item.box, item.score) for item in found if item.label == label]


@pytest.mark.parametrize("kept", [{}, {"precision": 0.9}, {"min_score": 0.6}, {"views": "mirror"}])
def test_filter_keeps_the_boxes_and_scores_of_all_answers(calibrated, heldout, kept):
    images, truth = heldout[0][:100], heldout[1][:100]
    everything = Detector(calibrated).predict(images, batch=50, progress=False, **kept)
    filtered = list(Detector(calibrated, labels=[NAME]).predict(images, batch=50, progress=False, **kept))
    assert list(map(boxes, everything)) == list(map(boxes, filtered)) == [boxes(found) for found in filtered]
    assert sum(map(len, filtered)) == sum(map(len, map(boxes, filtered))) > 5
    assert sum(not len(found) for found in filtered) > 50  # most images have no red circle
    left_out = sum(found.dropped.get("other_label", 0) for found in filtered)
    assert left_out == sum(found.fused.get("other_label", 0) for found in filtered) > 50
    of_all = [replace(found, objects=tuple(o for o in found if o.label == NAME)) for found in everything]
    assert judged(filtered, truth)[:, 1].mean() == judged(of_all, truth)[:, 1].mean() > 0.8


def test_labels_of_one_call_are_those_of_a_detector(free, heldout):
    images = heldout[0][:20]
    named = [found.labels for found in free.predict(images, labels=[NAME], progress=False)]
    assert named == [found.labels for found in free.asking(labels=[NAME]).predict(images, progress=False)]
    assert {label for labels in named for label in labels} == {NAME} and [] in named


def test_scores_of_forced_names_tell_present_from_absent(free, heldout):
    images, truth = heldout
    rows = judged(free.asking(only=[NAME]).predict(images, batch=100, progress=False), truth)
    assert len(rows) > 600 and rows[:, 1].sum() > 70  # every object is called so
    right, wrong = (rows[rows[:, 1] == hit, 0] for hit in (1, 0))
    assert calibration_error(rows) < 0.2 and wrong.mean() < 0.05 < 0.5 < right.mean()
    assert (wrong > 0.5).sum() < 10
    for name in ("zebra", "red"):  # a name of nothing, and the beginning of a name
        found = free.asking(only=[name]).predict(images[:50], batch=50, progress=False)
        assert max(item.score for one in found for item in one) < 0.01


def test_scores_of_forced_names_have_a_calibration_of_their_own(calibrated, heldout):
    images, truth = heldout
    ready = Detector(calibrated, only=[NAME], precision=0.9)
    assert ready.model.calibration is not None and ready.model.threshold.value > 0
    rows = judged(ready.predict(images, batch=100, progress=False, min_score=0.0), truth)
    assert len(rows) > 600 and calibration_error(rows) < 0.1
    kept = judged(ready.predict(images, batch=100, progress=False), truth)
    assert kept[:, 1].mean() > 0.8 and kept[:, 1].sum() > 40
    with pytest.raises(InputError, match=r"need a map of their own.*--only 'blue square'"):
        Detector(calibrated, only=["blue square"], precision=0.9)


def test_grammar_of_fewer_names_scores_them_among_all(run, free, heldout):
    three, images = [NAME, "blue square", "green triangle"], heldout[0][:60]
    words = ["evaluation.decoding.grammar=names", "evaluation.decoding.boxes=best_iou"]
    named = list(Detector(run, names=three, settings=words, calibrated=False).predict(images, progress=False))
    forced = free.asking(only=three).predict(images, progress=False)
    assert [found.labels for found in named] == [found.labels for found in forced]
    scores = [np.concatenate([found.scores for found in one]) for one in (named, list(forced))]
    assert np.abs(scores[0] - scores[1]).max() < 0.05  # among nine names, and among all texts
    assert {item.label for found in named for item in found} == set(three)


def test_names_that_the_model_never_learnt_are_told(run, free, heldout, tmp_path, capsys):
    from coord_trainer import cli

    assert free.asking(labels=["Red Circle", NAME], only=["zebra"]).model.unknown_names()[0].endswith(f"{NAME!r}")
    with pytest.MonkeyPatch.context() as patch:
        for words, code in ((), 0), (("--strict",), 2):
            told = ["predict", run, heldout[0][0], "--out", tmp_path / f"out{code}", "--label", "Red circle", *words]
            patch.setattr("sys.argv", ["coord-trainer", *map(str, told)])
            with pytest.raises(SystemExit) as stopped:
                cli.main()
            said = capsys.readouterr()
            assert stopped.value.code == code, said.err
            assert f"'Red circle' is none of the 9 names that the model was trained on; the nearest is {NAME!r}" in (
                said.out + said.err
            )
