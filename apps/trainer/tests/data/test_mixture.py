"""Several sources in one run: proportions, orders, what each has of its own, conversations, and what is refused."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from coco_document import coco_document
from mixed_sources import CAT, DOG, TALK, write_sources
from PIL import Image

from coord_codec import InputError
from coord_data.reading.image_set import load_annotated
from coord_data.reading.rules import ReadingRules
from coord_trainer.config.run_config import RunConfig, check_run_config
from coord_trainer.config.sections import DataSection
from coord_trainer.data.load import load_data, load_training
from coord_trainer.data.mixture import Mixture, Plan
from coord_trainer.data.samples import Samples
from coord_trainer.data.targets import TargetWriter

SOFT = {"coord_soft_ce_w1": {"enabled": True}}


def config(sources, **more):
    values = {"data": {"sources": sources} | more, "custom": SOFT, "evaluation": {"images": "none"}}
    return check_run_config(values, "test")


def naive_counts(sizes, weights):
    """One sample after the other goes to the source that is furthest behind its share (largest remainder)."""
    total = sum(sizes)
    exact = [weight / sum(weights) * total for weight in weights]
    counts = [int(share + 1e-9) for share in exact]
    while sum(counts) < total:
        counts[max(range(len(sizes)), key=lambda i: exact[i] - counts[i])] += 1
    return counts


@pytest.mark.parametrize(
    ("sizes", "weights"),
    [((5, 3, 2), (4, 2, 4)), ((1000, 10), (1, 1)), ((7,), (3.5,)), ((10, 10, 10), (1, 1, 1)), ((97, 31), (0.7, 0.2))],
)
def test_share_of_a_source_is_its_weight(sizes, weights):
    plan = Plan.of(sizes, weights, seed=3)
    seen = Counter(plan.locate(index, 0)[0] for index in range(len(plan)))
    assert [seen[part] for part in range(len(sizes))] == naive_counts(sizes, weights)
    assert len(plan) == sum(sizes)
    for part, weight in enumerate(weights):
        assert abs(seen[part] - weight / sum(weights) * len(plan)) < 1


def test_without_weights_an_epoch_is_every_record_once():
    plan = Plan.of((4, 3))
    for epoch in (0, 1):
        places = [plan.locate(index, epoch) for index in range(7)]
        assert places == [(0, n, epoch) for n in range(4)] + [(1, n, epoch) for n in range(3)]
    assert not plan.varies and Plan.of((5, 3), (1, 1)).varies


def test_no_record_is_seen_twice_before_all_were_seen_once():
    plan = Plan.of((10, 4), (1, 6), seed=5)  # the first is seen in part, the second several times an epoch
    walks = ([], [])
    for epoch in range(15):
        for index in range(len(plan)):
            part, record, seen = plan.locate(index, epoch)
            assert seen == len(walks[part]) // plan.sizes[part]
            walks[part].append(record)
    for walk, size in zip(walks, plan.sizes, strict=True):
        rounds = [walk[start : start + size] for start in range(0, len(walk) - size + 1, size)]
        assert len(rounds) > 1 and all(sorted(one) == list(range(size)) for one in rounds)
        assert len({tuple(one) for one in rounds}) > 1  # shuffled anew


def test_plan_follows_from_seed_and_epoch_alone():
    def walk(seed):
        plan = Plan.of((50, 8), (1, 1), seed)
        return [plan.locate(index, 3) for index in range(len(plan))]

    assert walk(1) == walk(1) != walk(2)
    with pytest.raises(IndexError):
        Plan.of((2, 2)).locate(4, 0)


def test_share_of_less_than_a_sample_is_refused():
    with pytest.raises(InputError, match=r"data\.sources\.1\.weight: its share is less than one of the 12 samples"):
        Plan.of((10, 2), (1000, 1))


def test_every_source_has_its_own_prompt_classes_root_and_augmentation(tmp_path):
    mixture = load_training(config(write_sources(tmp_path)))
    assert [source.name for source in mixture.sources] == ["a", "dogs", "talk"]
    data = DataSection()
    writers = [TargetWriter(s.data, True, 0, None, s.content.classes) for s in mixture.sources[:2]]
    samples = Samples(mixture, given, [*writers, None], None, augments=True)
    found = {0: set(), 1: set(), 2: set()}
    flipped = set()
    for epoch in range(8):
        samples.set_epoch(epoch)
        for index in range(len(samples)):
            sample = samples[index]
            found[sample["coord_source"]].add((sample["messages"][0]["content"], sample["images"][0].size))
            if sample["coord_source"] == 1:
                assert "cat" not in sample["messages"][1]["content"] and "dog" in sample["messages"][1]["content"]
                flipped.add(sample["messages"][1]["content"])
            if sample["coord_source"] == 2:
                assert sample["coord_boxes"] == [] and sample["coord_layout"].objects == ()
    assert found[0] == {("<image>Find every animal.", (64, 48))}
    assert found[1] == {(f"<image>{data.prompt}", (40, 40))}
    assert {text for text, _ in found[2]} == {"What is 2 + 2?", "Be brief."}
    assert len(flipped) == 2  # mirrored and as it is
    assert mixture.image_sets[1].annotations.notes["objects of other classes than those asked for, left out"] == 3


def given(record, **_):
    """In the place of swift's template: messages and images as they were given."""
    return {"labels": [1], "messages": record["messages"], "images": record["images"] or [Image.new("RGB", (1, 1))]}


def test_annotations_alone_are_the_case_of_one_source(tmp_path):
    path = write_sources(tmp_path)[0]["annotations"]
    one = load_training(check_run_config({"data": {"annotations": path}, "custom": SOFT, "evaluation": NONE}, "test"))
    other = load_training(config([{"annotations": path}]))
    assert (
        one.digest
        == other.digest
        == load_annotated(tmp_path / "big/a.jsonl", ReadingRules(strict=True), name="x").digest
    )
    assert one.plan == replace(other.plan, seed=one.plan.seed) and one.only is not None
    assert other.only is not None and list(one.only.instances) == list(other.only.instances)


def test_limit_takes_the_first_images_of_each_source_and_says_so(tmp_path):
    sources = write_sources(tmp_path)
    every = load_training(config(sources))
    assert [len(source.content) for source in every.sources] == [5, 3, 2]
    sources[1]["limit"] = 1
    found = load_training(config(sources, limit=2))
    assert [len(source.content) for source in found.sources] == [2, 1, 2]
    for mine, whole, count in zip(found.image_sets, every.image_sets, (2, 1), strict=True):
        assert list(mine.instances) == list(whole.instances)[:count]
        assert (
            mine.digest != whole.digest
            and mine.notes[-1] == f"the first {count} of {len(whole)} images are used (limit is {count})"
        )
    # What is scored when the training set is answered is what was trained on.
    path = sources[0]["annotations"]
    values = {"data": {"annotations": path, "limit": 1}, "custom": SOFT, "evaluation": {"images": "train"}}
    (alone,) = load_training(check_run_config(values, "test")).image_sets
    assert len(alone) == len(alone.ground_truth().instances) == 1
    with pytest.raises(InputError, match=r"data\.limit: the number of generated shapes"):
        check_run_config({"data": {"limit": 3}, "custom": SOFT}, "test")


NONE = {"images": "none"}


def test_manifest_has_proportions_and_digests(tmp_path):
    mixture = load_training(config(write_sources(tmp_path)))
    facts = mixture.facts()
    assert [(f["name"], f["kind"], f["records"], f["share"]) for f in facts] == [
        ("a", "images", 5, 0.4),
        ("dogs", "images", 3, 0.2),
        ("talk", "conversations", 2, 0.4),
    ]
    assert len({f["digest"] for f in facts}) == 3
    sources = write_sources(tmp_path)
    (tmp_path / "talk.jsonl").write_text(json.dumps(TALK[0]) + "\n" + json.dumps(TALK[1]).replace("brief", "short"))
    again = load_training(config(sources))
    assert again.facts()[:2] == facts[:2] and again.facts()[2]["digest"] != facts[2]["digest"]
    assert again.digest != mixture.digest


def test_sources_of_the_same_name_are_numbered(tmp_path):
    sources = write_sources(tmp_path)
    for source in sources:
        source.pop("name", None)
    assert [source.name for source in load_training(config(sources)).sources] == ["a-1", "a-2", "talk"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"weight": 0}, r"data\.sources\.0\.weight: input should be greater than 0, found 0"),
        ({"weight": "much"}, r"data\.sources\.0\.weight: .*found 'much'"),
        ({"weight": None}, r"data\.sources\.0\.weight: give every source a weight or none"),
        ({"conversations": "a.jsonl"}, r"expected either annotations or conversations, found both"),
        ({"annotations": None}, r"expected either annotations or conversations, found neither"),
        ({"wieght": 1}, r"data\.sources\.0\.wieght: unknown key; did you mean .*weight"),
        ({"prompt": " "}, r"data\.sources\.0\.prompt: expected a non-empty prompt"),
        ({"classes": []}, r"data\.sources\.0\.classes: expected one or more names"),
        *(
            ({"name": name}, r"data\.sources\.0\.name: expected a name that a folder can have")
            for name in ("", " ", "..", ".", "../../x", "/x", "a/b", "a\\b", "a\0")
        ),
        ({"augment": {"flip": 2}}, r"data\.sources\.0\.augment\.flip"),
    ],
)
def test_wrong_source_is_named(tmp_path, change, told):
    sources = write_sources(tmp_path)
    sources[0] |= change
    with pytest.raises(InputError, match=told) as error:
        config(sources)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"annotations": "a.json"}, r"data\.sources and data\.annotations are both given"),
        ({"images": "a"}, r"data\.sources and data\.images are both given"),
    ],
)
def test_both_forms_are_refused(tmp_path, data, told):
    with pytest.raises(InputError, match=told):
        config(write_sources(tmp_path), **data)


def test_conversation_may_not_set_what_has_no_effect_on_it(tmp_path):
    sources = write_sources(tmp_path)
    sources[2]["prompt"] = "Hello"
    with pytest.raises(InputError, match="conversations have their own text and no boxes: prompt has no effect"):
        config(sources)
    with pytest.raises(InputError, match="expected at least one source with annotations, found only conversations"):
        config([{"conversations": str(tmp_path / "talk.jsonl")}])


def test_held_out_set_must_not_be_one_of_the_sources(tmp_path):
    sources = write_sources(tmp_path)
    values = {"data": {"sources": sources, "heldout_annotations": sources[0]["annotations"]}, "custom": SOFT}
    with pytest.raises(InputError, match="hold the same data"):
        load_data(RunConfig.model_validate(values), tmp_path)
    with pytest.raises(InputError, match=r"evaluation\.images is train but data\.sources has"):
        check_run_config({"data": {"sources": sources}, "custom": SOFT, "evaluation": {"images": "train"}}, "test")


@pytest.mark.slow
def test_missing_file_of_a_source_is_one_line_and_exit_2(run, tmp_path):
    sources = write_sources(tmp_path)
    for number, key in ((0, "annotations"), (2, "conversations"), (1, "images")):
        wrong = [dict(source) for source in sources]
        wrong[number][key] = "gone"
        word = f"data.sources={json.dumps(wrong)}"
        code, told, _ = run("train", word, "evaluation.images=none", "custom.coord_soft_ce_w1.enabled=true")
        assert code == 2 and "gone" in told and "Traceback" not in told


@pytest.mark.slow
def test_every_annotated_source_is_inspected_also_after_one_with_errors(run, tmp_path):
    word = f"data.sources={json.dumps(write_sources(tmp_path))}"
    records = [json.loads(line) for line in (tmp_path / "big/a.jsonl").read_text().splitlines()]
    for record in records[1:4]:
        record["objects"] = [CAT | {"bbox": [0.5, 0.7, 0.1, 0.2]}]
    (tmp_path / "big/a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    code, error, told = run("inspect", word, "evaluation.images=none", "--out", tmp_path / "found")
    assert code == 1, error
    assert f"{tmp_path / 'talk.jsonl'}: conversations have no boxes to examine" in told
    assert {path.parent.name for path in (tmp_path / "found").glob("*/findings.json")} == {"a", "dogs"}


def test_class_list_leaves_other_objects_out_of_scoring_too(tmp_path):
    image = {"id": 1, "file_name": "big/0.png", "width": 64, "height": 48}
    boxes = [{"category_id": c, "bbox": [5, 5, 20, 20]} for c in (1, 2, 2)]
    coco = coco_document(boxes, [image], names=("cat", "dog"))
    write_sources(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(coco))
    found = load_annotated(tmp_path / "a.json", DataSection(classes=("dog", "bird"), strict=True))
    assert [(category.id, category.name) for category in found.annotations.categories] == [(2, "dog"), (3, "bird")]
    assert found.classes == ("dog", "bird") and found.target_counts.tolist() == [2]
    assert found.notes == ("the list of classes names a class that these annotations do not have: bird",)
    assert found.ground_truth().table.label_N.tolist() == [0, 0]
    with pytest.raises(InputError, match=r"classes: expected classes of these annotations \(cat, dog\), found bird"):
        load_annotated(tmp_path / "a.json", DataSection(classes=("bird",), strict=True))


def test_one_mixture_is_a_mixture(tmp_path):
    mixture = load_training(config(write_sources(tmp_path)))
    assert Mixture.of_one(mixture, DataSection()) is mixture
    assert len(mixture) == 10 and mixture.varies and mixture.only is None
    assert frozenset.union(*(images.words for images in mixture.image_sets)) == {CAT["desc"], DOG["desc"]}


def test_conversations_have_the_geometry_of_the_run(tmp_path):
    """A batch has one geometry, also where it mixes conversations with polygons."""
    mixture = load_training(config(write_sources(tmp_path), geometry="polygon", order="random"))
    talk = next(number for number, source in enumerate(mixture.sources) if source.images is None)
    samples = Samples(mixture, given, [None] * len(mixture.sources), None)
    assert samples.sample(0, 0, talk)["coord_geometry"] == "polygon"


def test_sources_of_one_size_have_orders_of_their_own_and_shares_of_fractions_add_up():
    plan = Plan.of((40, 40, 40), (2, 2, 1), seed=1)
    orders = [[plan.locate(index, 1)[1] for index in range(start, start + 24)] for start in (0, 48)]
    assert orders[0] != orders[1]
    for weights in ((0.1, 0.2, 0.7), (0.3, 0.3, 0.4), (1 / 3, 1 / 3, 1 / 3)):
        assert Plan.of((10, 10, 10), weights).counts == tuple(round(30 * weight) for weight in weights)


@pytest.mark.parametrize(("strict", "outside"), [(True, False), (False, True), (False, False)])
def test_conversations_are_read_by_the_rules_of_the_section(tmp_path, monkeypatch, strict, outside):
    from coord_trainer.data import load as module

    asked, real = [], module.load_conversations
    monkeypatch.setattr(module, "load_conversations", lambda *given: asked.append(given) or real(*given))
    sources = write_sources(tmp_path)
    load_training(config(sources, strict=strict, allow_outside=outside))
    sources[2]["allow_outside"] = not outside
    sources[2]["images"] = str(tmp_path)
    load_training(config(sources, strict=strict, allow_outside=outside))
    assert [given[1:] for given in asked] == [(None, "talk", strict, outside), (tmp_path, "talk", strict, not outside)]


def test_facts_of_a_run_have_digests_weights_and_problems_of_each_source(tmp_path):
    sources = write_sources(tmp_path)
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps(talk) + "\n" for talk in [*TALK, {}, {}]))
    mixture = load_training(config(sources, strict=False))
    assert [(f["weight"], f["problems"]) for f in mixture.facts()] == [(4.0, 0), (2.0, 0), (4.0, 2)]
    assert mixture.only is None and mixture.varies and len(mixture.image_sets) == 2
    alone = load_training(config(sources[:1]))
    assert alone.only is alone.image_sets[0] and not alone.varies and alone.digest == alone.only.digest
    augmented = load_training(config([sources[0] | {"augment": {"colour": 0.5}}]))
    assert augmented.varies and not augmented.plan.varies
