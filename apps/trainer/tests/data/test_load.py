"""What a run says and records of its data."""

import json

import pytest
from mixed_sources import write_sources

from coord_codec import InputError
from coord_trainer.config.run_config import check_run_config
from coord_trainer.data.load import load_data, load_scored, load_training
from coord_trainer.data.targets import TargetWriter
from coord_trainer.evaluation.score import _beyond_cap, _left_out

SOFT = {"coord_soft_ce_w1": {"enabled": True}}


def config(scored, /, **data):
    return check_run_config({"custom": SOFT, "data": data, "evaluation": {"images": scored}}, "test")


@pytest.fixture
def sources(tmp_path):
    """Two sources and conversations; in the first a record is refused."""
    found = write_sources(tmp_path)
    with (tmp_path / "big" / "a.jsonl").open("a") as file:
        file.write(json.dumps({"image": "gone.png", "width": 9, "height": 9, "objects": []}) + "\n")
    return found


def test_facts_count_images_and_problems_of_every_source_and_of_the_held_out_set(tmp_path, sources):
    held_out = tmp_path / "held" / "a.jsonl"
    held_out.parent.mkdir()
    (tmp_path / "held" / "0.png").write_bytes((tmp_path / "big" / "0.png").read_bytes())
    records = [{"image": name, "width": 64, "height": 48, "objects": []} for name in ("0.png", "gone.png")]
    records[0]["objects"] = [{"desc": "cat", "bbox": [0.1, 0.1, 0.3, 0.4]}]
    held_out.write_text("".join(json.dumps(record) + "\n" for record in records))
    data = load_data(config("heldout", sources=sources, heldout_annotations=str(held_out)), tmp_path)
    facts = data.facts()
    assert {name: (row["images"], row["problems"]) for name, row in facts.items()} == {
        "train": (5 + 3, 1),
        "heldout": (1, 1),
    }
    assert all(row["digest"] for row in facts.values()) and len(facts["train"]["sources"]) == 3
    assert (data.scores, data.scored) == ("heldout", data.heldout)


def test_run_says_the_share_of_each_source_and_lists_each_problem(tmp_path, sources, capsys):
    data = load_data(config("none", sources=sources), tmp_path)
    assert (data.scores, data.heldout, data.scored) == ("none", None, None) and set(data.facts()) == {"train"}
    data.write(tmp_path)
    told = capsys.readouterr().out
    for line in ("10 samples per epoch from 3 sources", "a: 4 samples (40.0%)", "dogs: 2 samples (20.0%)"):
        assert line in told
    assert "2 conversations with 2 images" in told and "1 problem: these records are left out" in told
    (problem,) = map(json.loads, (tmp_path / "problems.jsonl").read_text().splitlines())
    assert problem["set"] == "a" and "gone.png" in json.dumps(problem)
    alone = load_data(config("none", annotations=sources[1]["annotations"], images=sources[1]["images"]), tmp_path)
    (tmp_path / "alone").mkdir()
    alone.write(tmp_path / "alone")
    assert "per epoch" not in capsys.readouterr().out and not list((tmp_path / "alone").iterdir())


def test_mirrored_records_that_name_a_side_are_told_where_images_are_mirrored(tmp_path, sources):
    records = [
        {"image": f"{n}.png", "width": 64, "height": 48, "query": q, "objects": []}
        for n, q in enumerate(("left cat", "cat"))
    ]
    (tmp_path / "big" / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for flip, told in ((0.0, 0), (0.5, 1)):
        given = config("none", annotations=str(tmp_path / "big" / "a.jsonl"), augment={"flip": flip})
        (images,) = load_training(given).image_sets
        assert sum("1 record contains left or right, not mirrored" in note for note in images.notes) == told


def test_scored_images_are_those_that_the_settings_name(tmp_path, sources):
    first, second = sources[0]["annotations"], sources[1]["annotations"]
    data = {"annotations": first, "heldout_annotations": second, "heldout_images": sources[1]["images"]}
    assert len(load_scored(config("heldout", **data), tmp_path)) == 3
    assert len(load_scored(config("train", **data), tmp_path)) == 5
    assert len(load_scored(config("train", limit=2, **data), tmp_path)) == 2
    assert len(load_scored(config("heldout", limit=2, **data), tmp_path)) == 3  # a limit is that of training
    with pytest.raises(InputError, match=r"evaluation\.images is none"):
        load_scored(config("none", annotations=first), tmp_path)
    with pytest.raises(InputError, match="hold the same data"):
        load_data(config("heldout", annotations=first, heldout_annotations=first), tmp_path)


def test_losses_that_no_answer_avoids_are_those_of_the_scored_images(tmp_path, sources):
    """Two objects in the last image but one, one in others; the limit leaves it out."""
    counts = {}
    for limit in (None, 2, 5):
        given = config("train", annotations=sources[0]["annotations"], max_objects=1)
        section = given.evaluation.model_copy(update={"limit": limit})
        given = given.model_copy(update={"evaluation": section})
        images = load_scored(given, tmp_path)
        counts[limit] = _beyond_cap(given, images)
        told = " ".join(_left_out(given, images))
        assert ("beyond data.max_objects=1" in told) is bool(counts[limit]) and "1 refused record" in told
    assert images.target_counts.tolist() == [0, 1, 2, 0, 1] and counts == {None: 1, 2: 0, 5: 1}


def test_longest_text_has_the_longest_names_that_a_query_may_list(tmp_path, sources):
    """`max_length` is checked before any query is drawn."""
    (images, _) = load_training(config("none", sources=sources)).image_sets
    names = ("wolf", "a", "elephant", "cow", "zebra", "hippopotamus", "ox")
    plain, mixed = (
        TargetWriter(config("none", sources=sources, queries=queries).data, True, 0, None, names)
        for queries in ("all", "mixed")
    )
    instance = images.instances[2]
    assert plain.longest(instance) == plain.text(instance)
    added = mixed.longest(instance).removeprefix(mixed.text(instance))
    assert {*added.rpartition(": ")[2].split(", ")} == {"wolf", "cow", "zebra", "elephant", "hippopotamus"}
