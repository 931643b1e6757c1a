"""Queries: what a sample asks for, against counts over many draws; the answer names what was asked for alone."""

from collections import Counter

import pytest

from coord_codec import Instance
from coord_trainer.config.sections import DataSection
from coord_trainer.data.queries import LONGEST_LIST, draw_query
from coord_trainer.data.targets import TargetWriter

CLASSES = ("cat", "dog", "cow", "red car")
BOXES = {"dog": [0, 0, 0.5, 0.5], "cat": [0.5, 0.5, 1, 1]}
OBJECTS = [{"desc": name, "bbox": box} for name, box in BOXES.items()] + [{"desc": "dog", "bbox": [0.1, 0.6, 0.3, 0.9]}]
IMAGE = Instance(image="a.jpg", width=10, height=10, image_id=3, objects=OBJECTS)
DRAWS = 2000


def draws(**settings):
    data = DataSection(**settings)
    return [draw_query(IMAGE, data, CLASSES, seed) for seed in range(DRAWS)]


def test_all_asks_the_usual_prompt():
    (query,) = set(draws())
    assert query.prompt == DataSection().prompt and query.answer(IMAGE) is IMAGE


@pytest.mark.parametrize("negatives", [0, 0.3, 1])
def test_per_class_asks_for_one_class_and_answers_with_it_alone(negatives):
    asked = Counter()
    for query in draws(queries="per_class", negatives=negatives):
        (name,) = query.classes
        assert query.prompt.endswith(f": {name}")
        assert [o.desc for o in query.answer(IMAGE).objects] == {"dog": ["dog", "dog"], "cat": ["cat"]}.get(name, [])
        asked[name] += 1
    absent = (asked["cow"] + asked["red car"]) / DRAWS
    assert absent == pytest.approx(negatives, abs=0.04)
    assert asked["dog"] == pytest.approx(asked["cat"], abs=0.1 * DRAWS)


@pytest.mark.slow
def test_class_list_has_absent_classes_among_the_present_ones():
    lengths, orders = set(), set()
    for query in draws(queries="class_list", negatives=0):
        lengths.add(len(query.classes))
        orders.add(query.prompt)
        assert query.classes <= set(CLASSES) and len(query.classes) <= LONGEST_LIST
        found = {o.desc for o in query.answer(IMAGE).objects}
        assert found == query.classes & set(BOXES) and found
    assert lengths == {1, 2, 3, 4} and len(orders) > 20
    assert all(not q.answer(IMAGE).objects for q in draws(queries="class_list", negatives=1))


def test_mixed_is_a_third_of_each():
    queries = draws(queries="mixed")
    assert sum(query.classes is None for query in queries) / DRAWS == pytest.approx(1 / 3, abs=0.04)
    assert max(len(query.classes) for query in queries if query.classes) > 1


def test_record_with_a_phrase_asks_for_it():
    phrase = Instance(image="a.jpg", objects=OBJECTS[:1], query="the dog on the left")
    query = draw_query(phrase, DataSection(class_prompt="Where is {classes}?"), CLASSES, 0)
    assert query.prompt == "Where is the dog on the left?" and query.answer(phrase) is phrase


def test_image_without_objects_is_asked_for_what_is_not_there():
    empty = Instance(image="a.jpg", objects=())
    assert draw_query(empty, DataSection(queries="per_class", negatives=0), CLASSES, 0).classes
    assert draw_query(empty, DataSection(queries="per_class"), (), 0).prompt == DataSection().prompt


HERE = {"desc": "cat", "bbox": [0, 0, 0.5, 0.5]}
CROWD = {"desc": "dog", "bbox": [0.5, 0.5, 1, 1], "iscrowd": True}


@pytest.mark.parametrize(
    ("fields", "absent"),
    [
        ({"objects": [HERE, CROWD]}, {"cow", "red car"}),
        ({"objects": [HERE], "uncertain": ["dog"]}, {"cow", "red car"}),
        ({"objects": [HERE], "absent": ["dog", "cow", "zebra"], "uncertain": ["cow"]}, {"dog"}),
        ({"objects": [HERE], "absent": []}, set()),
        ({"objects": [HERE], "absent": True}, {"dog", "cow", "red car"}),  # a key of the user's own
    ],
)
def test_only_what_is_known_to_be_absent_is_asked_for_without_an_answer(fields, absent):
    record = Instance(image="a.jpg", **fields)
    for queries, negatives in (("per_class", 0.5), ("class_list", 0), ("class_list", 0.5)):
        data = DataSection(queries=queries, negatives=negatives)
        asked = frozenset().union(*(draw_query(record, data, CLASSES, seed).classes for seed in range(300)))
        assert asked == absent | {"cat"}


def test_writer_asks_anew_in_each_epoch_and_the_same_with_the_same_seed():
    writer, again, other = (TargetWriter(DataSection(queries="mixed"), True, seed, None, CLASSES) for seed in (0, 0, 1))
    prompts = [writer.ask(IMAGE, epoch)[0] for epoch in range(20)]
    assert prompts == [again.ask(IMAGE, epoch)[0] for epoch in range(20)]
    assert prompts != [other.ask(IMAGE, epoch)[0] for epoch in range(20)] and len(set(prompts)) > 4
    prompt, answered = TargetWriter(DataSection(queries="per_class", negatives=1), True, 0, None, CLASSES).ask(IMAGE)
    assert writer.text(answered) == "" and ("cow" in prompt or "red car" in prompt)


def test_random_choices_differ_by_image_epoch_and_seed_alone():
    """Images without ids are told apart by their names, and those of one name by their ids."""
    ids = [(name, number) for name in ("a", "b") for number in (None, 1, 2)]
    records = [Instance(image=name, image_id=number, objects=()) for name, number in ids]
    writers = [TargetWriter(DataSection(), True, seed, None) for seed in (0, 1)]
    drawn = [writer.seed_of(record, epoch) for writer in writers for record in records for epoch in (0, 1)]
    assert len(set(drawn)) == len(drawn) == 24
    assert writers[0].seed_of(records[0], 1) == TargetWriter(DataSection(max_objects=1), False, 0, None).seed_of(
        records[0], 1
    )
