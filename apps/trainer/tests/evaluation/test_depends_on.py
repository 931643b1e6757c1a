"""What unfinished answers depend on: every setting that changes an answer, and every part of the record of them."""

import json
from types import SimpleNamespace

import pytest
import torch

from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.resumable_file import begin
from coord_detect.model.checkpoint import LoadedCheckpoint
from coord_trainer.config.run_config import load_run_config
from coord_trainer.config.sections import DataSection
from coord_trainer.evaluation.decodings import depends_on

WORDS = {
    "model.dtype=bfloat16": "dtype",
    "evaluation.limit=3": "images",
    "evaluation.decoding.grammar=markers": "decoding",
    "evaluation.decoding.boxes=median": "decoding",
    "evaluation.decoding.grammar=names": "names",
    "evaluation.views=[mirror]": "views",
    "data.prompt=Where?": "answers",
    "data.markers=obj": "answers",
    "data.style=json": "answers",
    "data.geometry=point": "answers",
    "data.max_vertices=9": "answers",
    "data.max_objects=3": "answers",
    "data.min_pixels=4096": "answers",
    "data.max_pixels=8192": "answers",
}
"""Settings, and the part of the record that each changes."""

IN_THE_DIGEST = "the digest of the images has what it decides"
OF_TRAINING = "it decides what is trained on, and the weights follow"
NOT_IN_THE_RECORD = {
    **dict.fromkeys(("annotations", "images", "heldout_annotations", "heldout_images", "shapes"), IN_THE_DIGEST),
    **dict.fromkeys(("format", "fields", "read_as", "classes", "on_bad_box", "max_side_ratio"), IN_THE_DIGEST),
    **dict.fromkeys(("allow_outside", "limit"), IN_THE_DIGEST),
    **dict.fromkeys(("sources", "queries", "negatives", "augment", "packing", "order"), OF_TRAINING),
    "class_prompt": "only views ask for classes, whose part of the record has it",
    "strict": "raises an error, or changes nothing",
}
"""The other settings of `data`, with the reason why answers need no record of them."""


def recorded(folder, *words, digest="d", limit=64, system=None, weights=b"w", names=("cat", "dog")):
    """Return the record for a checkpoint's folder, as it is read back from a file."""
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    config = load_run_config(None, words, trains=False)
    opened = LoadedCheckpoint(SimpleNamespace(device=torch.device("cpu")), object(), None, system)
    detector = AnsweringModel(object(), config, names=names)
    return json.loads(json.dumps(depends_on(folder, digest, opened, detector, limit)))


@pytest.mark.parametrize(("word", "part"), WORDS.items(), ids=WORDS)
def test_setting_that_changes_answers_changes_the_record(tmp_path, word, part):
    plain, other = recorded(tmp_path / "m"), recorded(tmp_path / "m", word)
    assert plain[part] != other[part]


@pytest.mark.parametrize(
    "other", ['evaluation.views=[mirror, "tiles:64x64"]', "data.class_prompt=Each {classes}?", "names"]
)
@pytest.mark.parametrize("views", [True, False])
def test_views_depend_on_what_they_ask_for_and_answers_without_them_do_not(tmp_path, other, views):
    """What is asked for one class after the other, and in which words."""
    words = ["evaluation.views=[mirror]"] if views else []
    names = ("cat", "cow") if other == "names" else ("cat", "dog")
    given = [other] if "=" in other and (views or "views" not in other) else []
    plain, found = (
        recorded(tmp_path / "m", *words, *more, names=asked) for more, asked in (([], ("cat", "dog")), (given, names))
    )
    assert {part for part in plain if plain[part] != found[part]} - {"weights"} == ({"views"} if views else set())


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"digest": "e"}, "images"),
        ({"limit": 65}, "max_new_tokens"),
        ({"system": "You see."}, "system"),
        ({"weights": b"other"}, "weights"),
    ],
)
def test_what_no_setting_states_changes_the_record(tmp_path, given, part):
    plain = recorded(tmp_path / "m")
    other = recorded(tmp_path / "m", **given)
    assert plain[part] != other[part]


def test_every_part_of_the_record_alone_makes_other_answers(tmp_path):
    record = recorded(tmp_path / "m", "evaluation.views=[mirror]")
    path = tmp_path / "predictions.jsonl"
    for part in record:
        begin(path, record).write([{"image": "a", "text": "kept"}])
        assert begin(path, record).latest()
        assert not begin(path, {**record, part: "changed"}).latest(), part
    covered = {*WORDS.values(), "weights", "max_new_tokens", "system"}
    assert covered == set(record)


def test_every_setting_of_data_is_in_the_record_or_need_not_be():
    of_data = {word.partition("=")[0].removeprefix("data.") for word in WORDS if word.startswith("data.")}
    assert not of_data & {*NOT_IN_THE_RECORD}
    assert of_data | {*NOT_IN_THE_RECORD} == {*DataSection.model_fields}
