"""What a review makes of the answers and likelihoods of one model, or of the models of several folds."""

from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from coord_codec import Instance, RunError
from coord_eval.review import LabelLikelihood
from coord_trainer.review import command
from coord_trainer.review.command import ReviewRequest, _Answered, review_annotations
from coord_trainer.review.judging import Judged

BOX = {"desc": "cat", "bbox": [0, 0, 1, 1]}


@dataclass(frozen=True)
class Found:
    """A review that notes what it is asked to write."""

    findings: tuple = (1, 2)
    notes: tuple = ("own note",)
    written: list = field(default_factory=list)

    def write(self, out, **more):
        self.written.append((out, more))
        return out / "review.html"


@pytest.fixture
def reviewing(monkeypatch, tmp_path):
    """Review three images, of which the first has the id 0 and the last none, with stand-ins for the model."""

    def call(folds=0, errors=(), model=Path("runs/a"), **more):
        seen = SimpleNamespace(asked=[], given=[], trained=[])
        instances = [Instance(image=f"{n}.png", objects=[BOX] * n, image_id=i) for n, i in ((1, 0), (2, 7), (1, None))]
        truth = SimpleNamespace(instances=instances)
        sources = SimpleNamespace(
            images=tuple("abc"), truth=truth, notes=("of the sources",), root=tmp_path, labels=("cat",)
        )

        def ask(request, config, model, records, out):
            seen.asked.append((model, [record.image_id for record in records], out))
            made = [
                {"image_id": r.image_id, "finish_reason": "error" if r.image_id in errors else "stop", "error": "bad"}
                for r in records
            ]
            labels = tuple(
                LabelLikelihood(r.image_id, n)
                for r in reversed(records)
                for n in reversed(range(len(r.instance.objects)))
            )
            return _Answered(
                made, Judged(labels, 1, 0), f"reading of {out.name}", f"calibration of {out.name}", "is not"
            )

        def split(records, count, out):
            parts = [records[n::count] for n in range(count)]
            return [
                SimpleNamespace(number=n, records=p, run=out / f"run{n}", folder=out / str(n))
                for n, p in enumerate(parts)
            ]

        monkeypatch.setattr(command, "_ask", ask)
        monkeypatch.setattr(command, "split_folds", split)
        monkeypatch.setattr(command, "train_folds", lambda *words: seen.trained.append(words))
        monkeypatch.setattr(command, "_on_training", lambda *_: ["of the training"])
        monkeypatch.setattr(command, "locate_model", lambda model: model)
        monkeypatch.setattr(command, "review", lambda *words, **more: seen.given.append((words, more)) or Found())
        monkeypatch.setattr(command, "write_review_exports", lambda *words: [Path("cvat.xml")])
        written = []
        monkeypatch.setattr(command, "write_likelihoods", lambda path, found: written.append((path, found)))
        request = ReviewRequest(model, sources, "val.json", tmp_path / "out", folds, exports=("cvat",), **more)
        seen.found = review_annotations(request, None, "training")
        ((seen.path, seen.likelihoods),) = written or [(None, [])]
        return seen

    return call


def test_review_of_one_model_has_its_answers_calibration_and_every_note(reviewing, tmp_path, capsys):
    seen = reviewing(errors=(7,))
    assert seen.asked == [(Path("runs/a"), [0, 7, 2], tmp_path / "out")] and seen.trained == []
    (((_, answers), given),) = seen.given
    assert [record["image_id"] for record in answers] == [0, 2]  # an error is no empty answer
    order = [(one.image_id, one.object) for one in given["likelihoods"]]
    assert order == [(0, 0), (7, 0), (7, 1), (2, 0)] and given["likelihoods"] == seen.likelihoods
    assert (given["answers"], given["calibration"]) == ("reading of out", "calibration of out")
    assert seen.path == tmp_path / "out" / "likelihoods.jsonl"
    assert (
        seen.found.notes[0] == "of the training" and seen.found.notes[-1] == "own note" and "is not" in seen.found.notes
    )
    ((_, told),) = seen.found.written
    assert told["facts"] == {"model": "a", "annotations": "val.json"} and told["image_root"] == str(tmp_path)
    out = capsys.readouterr().out
    for line in ("3 images with 4 labels", "of the sources", "1 label beyond", "own note", "2 suspicions", "cvat.xml"):
        assert line in out, line


def test_review_of_folds_numbers_their_likelihoods_and_is_not_calibrated_by_one_of_them(reviewing, tmp_path):
    seen = reviewing(folds=2, model=None)
    place = tmp_path / "out" / "folds"
    assert seen.asked == [(place / "run0", [0, 2], place / "0"), (place / "run1", [7], place / "1")]
    assert [words[1:] for words in seen.trained] == [("training", tmp_path)]
    ((_, given),) = seen.given
    assert given["calibration"] is None and {one.image_id: one.fold for one in given["likelihoods"]} == {
        0: 0,
        7: 1,
        2: 0,
    }
    assert seen.found.written[0][1]["facts"]["model"] == "2 folds"
    assert seen.found.notes.count("is not") == 1 and "of the training" not in seen.found.notes
    assert any("2 labels beyond" in note for note in seen.found.notes)


def test_review_without_any_answer_is_refused_and_other_ranks_write_nothing(reviewing, monkeypatch):
    with pytest.raises(RunError, match="no image could be answered; the first: bad"):
        reviewing(errors=(0, 7, 2))
    assert reviewing(errors=(0, 7)).found is not None
    monkeypatch.setattr(command, "is_first", lambda: False)
    assert reviewing().found is None


@pytest.mark.parametrize(
    ("trained", "unknown", "told"),
    [(["a"], "", "trained on 1 of 3 images"), ([], "moved", r"not known here (moved)"), ([], "", None)],
)
def test_training_of_the_model_on_these_images_is_told(monkeypatch, trained, unknown, told):
    monkeypatch.setattr(command, "trained_images", lambda _: SimpleNamespace(unknown=unknown))
    monkeypatch.setattr(command, "trained_among", lambda *_: trained)
    notes = command._on_training(SimpleNamespace(images=tuple("abc")), Path("m"))
    assert (notes == []) if told is None else (told in notes[0] and len(notes) == 1)


@pytest.mark.parametrize(
    ("why", "same", "checkpoint", "found"),
    [
        (None, True, True, "kept"),
        (None, False, True, "anew"),  # labels were changed since
        ("not finished (interrupted)", True, True, "resumed"),
        ("not finished (running)", True, False, "anew"),
        ("not finished (interrupted)", False, True, "anew"),
        ("made with other settings: x", True, True, "anew"),
    ],
)
def test_run_of_a_fold_is_kept_resumed_or_made_anew(monkeypatch, tmp_path, why, same, checkpoint, found):
    from tiny_run import tiny_config

    from coord_trainer.review import folds
    from coord_trainer.review.judging import JudgedRecord

    monkeypatch.setattr(folds, "why_not_kept", lambda *_: why)
    monkeypatch.setattr(folds, "newest_complete", lambda _: (Path("checkpoint-3") if checkpoint else None, []))
    fold = folds.Fold(1, (), tmp_path / "1")
    (fold.run / "checkpoints").mkdir(parents=True)
    records = [JudgedRecord(None, Instance(image=f"{n}.png", objects=[BOX]), n) for n in range(3)]
    folds._planned(fold, records if same else records[:2], tiny_config(), tmp_path)
    run = folds._planned(fold, records, tiny_config(evaluation={"ap_steps": 1, "ap_patience": 2}), tmp_path)
    assert (run is None) is (found == "kept")
    if run is not None:
        assert run.config.run.resume is (found == "resumed") and run.folder == fold.run
        assert run.config.evaluation.ap_patience is None and run.group.name == "fold-1"


@pytest.mark.parametrize("force", [True, False])
def test_some_records_are_asked_in_their_folder_with_the_settings_of_the_model(monkeypatch, tmp_path, force):
    """The images of these records alone, of all labels; likelihoods rest on what the answers rest on."""
    seen, chosen = SimpleNamespace(), SimpleNamespace(evaluation=SimpleNamespace(batch_size=5))
    sources = make_dataclass("Sources", ["images", "labels", "root"])(("a", "b", "c"), ["dog", "cat"], "root")

    class Detector(SimpleNamespace):
        @classmethod
        def load(cls, *given):
            seen.loaded = given
            engine = SimpleNamespace(checkpoint="weights")
            return cls(config=chosen, engine=engine, reading="r", calibration="c", uncalibrated="u")

    @contextmanager
    def answer_sources(detector, some, out, depends_on, *, batch, force):
        seen.answered = (some, out, depends_on, batch, force)
        yield SimpleNamespace(records=iter([{"image_id": 1}, {"image_id": 2}]))

    monkeypatch.setattr(command, "AnsweringModel", Detector)
    monkeypatch.setattr(command, "session_settings", lambda detector: {"of": detector.reading})
    monkeypatch.setattr(command, "answer_sources", answer_sources)
    monkeypatch.setattr(command, "Forcing", lambda *given: given)
    monkeypatch.setattr(command, "judge", lambda *given: given)
    records = [SimpleNamespace(source=name) for name in "ca"]
    request = ReviewRequest(None, sources, "val.json", tmp_path / "out", 2, force=force)
    found = command._ask(request, "config", tmp_path / "run", records, tmp_path / "part")
    assert seen.loaded == (tmp_path / "run", "config", ["dog", "cat"])
    assert seen.answered == (replace(sources, images=("c", "a")), tmp_path / "part" / "answers", {"of": "r"}, 5, force)
    judged = (("weights", chosen, frozenset({"cat", "dog"})), records, tmp_path / "part", {"of": "r"})
    assert found == _Answered([{"image_id": 1}, {"image_id": 2}], judged, "r", "c", "u")
