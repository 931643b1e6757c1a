"""`calibrate`: what it answers, which objects count, what the calibration says it rests on, and what stays on disk."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from coco_document import coco_document
from fakes import RuleEngine, card_of, make_images
from fakes import detector as answering

import coord_eval
from coord_codec import InputError
from coord_detect.detection import calibrate
from coord_detect.model.checkpoints import mark_complete
from coord_detect.settings.load import load_settings
from coord_detect.settings.record import Settings


class Forced(RuleEngine):
    """Is held to names, and fails for images that are smaller than the others."""

    names, only, fails = ("cat", "dog"), (), False

    def answer(self, images):
        found = super().answer(images)
        failed = {"text": None, "finish_reason": "error", "error": "busy"}
        return [failed if self.fails and image.width < 40 else row for image, row in zip(images, found, strict=True)]


@pytest.fixture
def calibrated(tmp_path, monkeypatch, capsys):
    """Calibrate with a stand-in of the model; returns what was scored and fitted, the card, and what was told."""
    photos = make_images(tmp_path / "photos", a=(40, 20), b=(40, 20), c=(20, 20))
    images = [{"id": n, "file_name": f"{name}.png", "width": 40, "height": 20} for n, name in enumerate("abc", 1)]
    rows = [{"bbox": [10, 10, 20, 7], "image_id": n, "category_id": c} for n in (1, 2, 3) for c in (1, 2)]
    document = coco_document(rows, images, ("cat", "dog"))
    (tmp_path / "val.json").write_text(json.dumps(document))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    card_of().write(model)
    mark_complete(model)

    def call(*words, only=(), strict=False, limit=None, **facts):
        loaded, detectors, scored, fitted = [], [], [], []
        config, _ = load_settings(Settings, None, [*words, *([f"evaluation.limit={limit}"] if limit else [])])
        engine = Forced()
        vars(engine).update({"only": only} | facts)

        def load(place, config, names, labels=(), only=(), *, calibrated=True):
            loaded.append((names, only, calibrated))
            detectors.append(replace(answering(engine, *words), only=frozenset(only)))
            return detectors[-1]

        def score(truth, records, *, answers, report):
            assert answers == detectors[-1].reading and not report.diagnose  # as `predict` reads
            scored.append((truth, records))
            return "scored"

        def fit(evaluation, rests_on):
            fitted.append(rests_on)
            return SimpleNamespace(to_dict=lambda: {"rests_on": rests_on})

        monkeypatch.setattr(calibrate.AnsweringModel, "load", load)
        monkeypatch.setattr(coord_eval, "score", score)
        monkeypatch.setattr(coord_eval, "fit_calibration", fit)
        calibrate.calibrate_model(model, tmp_path / "val.json", photos, config, strict, only)
        card = json.loads((model / "coordexp.json").read_text())["calibrations"]
        assert loaded == [(("cat", "dog"), only, False)]  # scores as they are, not those of an older calibration
        assert not [*model.glob("calibration.jsonl*")]
        return scored[0], fitted[0], card, capsys.readouterr().out

    return call


def names_of(truth):
    return {item.desc for instance in truth.instances for item in instance.objects}


def test_calibration_rests_on_what_was_answered_and_names_all_of_it(calibrated):
    (truth, records), rests_on, card, told = calibrated()
    assert rests_on == {"annotations": "val.json", "decoding": "none", "views": []}
    assert len(records) == 3 and names_of(truth) == {"cat", "dog"} and len(card) == 1
    assert "cannot be answered" not in told and "is not known here: the model is in no run folder" in told
    (truth, _), rests_on, card, _ = calibrated("evaluation.views=[mirror]", only=("cat",))
    assert rests_on == {"annotations": "val.json", "decoding": "none", "views": ["mirror"], "only": ["cat"]}
    assert names_of(truth) == {"cat"} and len(card) == 2  # that of before stays
    (_, records), _, _, told = calibrated(limit=2)
    assert len(records) == 2
    (_, records), _, _, told = calibrated(fails=True)
    assert "1 image cannot be answered; the first, c.png: busy" in told
    calibrated("evaluation.decoding.boxes=best_iou")


def test_calibration_is_refused_without_a_card(tmp_path):
    mark_complete(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"coordexp\.json|complete"):
        calibrate.calibrate_model(tmp_path, tmp_path / "a.json", None, Settings(), False)
