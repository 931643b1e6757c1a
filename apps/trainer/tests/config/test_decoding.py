"""The two settings of a decoding."""

import pytest

from coord_codec import InputError
from coord_detect.settings.decoding import Decoding
from coord_trainer.config.run_config import load_run_config
from coord_trainer.folder import prediction_files

BOXES = ("tokens", "median", "best_iou", "expectation")
SOFT = "custom.coord_soft_ce_w1.enabled=true"


def decodings(*words):
    return load_run_config(None, [SOFT, *words]).evaluation.decoding


ALL = [Decoding(grammar=grammar, boxes=boxes) for grammar in ("none", "markers", "names") for boxes in BOXES]


def test_free_answers_are_the_same_whatever_boxes_are_taken_from_them():
    free = [decoding for decoding in ALL if decoding.grammar == "none"]
    assert len(free) > 1 and {decoding.generation for decoding in free} == {Decoding()}
    assert {decoding.boxes for decoding in ALL if not decoding.needs_tokens} == {"tokens"}


def test_names_tell_decodings_apart():
    assert len({decoding.name for decoding in ALL}) == len({d.meaning for d in ALL}) == len(ALL)


def test_first_decoding_writes_into_the_run_folder_itself(tmp_path):
    names, free = Decoding(grammar="names"), Decoding()
    files = dict(prediction_files([names, free], tmp_path))
    assert files[names] == tmp_path / "predictions.jsonl"
    assert files[free] == tmp_path / "decodings" / "none" / "predictions.jsonl"


def test_settings_of_one_decoding_replace_a_list_and_add_up(tmp_path):
    file = tmp_path / "base.yaml"
    file.write_text("evaluation: {decoding: [{grammar: none}, {grammar: names}]}\n")
    words = ["evaluation.decoding.grammar=markers", "evaluation.decoding.boxes=median"]
    config = load_run_config(file, [SOFT, *words])
    assert config.evaluation.decoding == (Decoding(grammar="markers", boxes="median"),)


@pytest.mark.parametrize(
    "words",
    [
        ["evaluation.decoding=[]"],
        ["evaluation.decoding=markers"],
        ["evaluation.decoding=[{},{grammar: none}]"],
        ["evaluation.decoding.grammar=wish"],
    ],
)
def test_wrong_decodings_are_refused_by_their_key(words):
    _, key, *setting = words[0].partition("=")[0].split(".")
    with pytest.raises(InputError, match=".*".join((rf"evaluation\.{key}\b", *setting))):
        decodings(*words)
