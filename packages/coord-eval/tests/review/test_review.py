"""Planted faults of every kind are named, clean labels are quiet, and likelihoods of labels count."""

import re
from dataclasses import replace

import numpy as np
import pytest
from coco_builder import coco, iou

from coord_codec import Instance
from coord_eval import Calibration, InputError
from coord_eval.metrics.thresholds import ThresholdCurve
from coord_eval.review import KINDS, LabelLikelihood, read_likelihoods, review, write_likelihoods


def by_id(document, found):
    """The finding of each annotation id, by counting annotations of each image in the order of the file."""
    seen, place = {}, {}
    for row in document["annotations"]:
        seen[row["image_id"]] = seen.get(row["image_id"], -1) + 1
        place[row["image_id"], seen[row["image_id"]]] = row["id"]
    return {place[f.image_id, f.object]: f for f in found.findings if f.object is not None}


def corners(row):
    x, y, w, h = row["bbox"]
    return x, y, x + w, y + h


def test_review_names_planted_faults_of_every_kind(spoilt, said, clean):
    document, planted, removed = spoilt
    found = review(document, said)
    findings = by_id(document, found)
    truth = {row["id"]: row for row in clean["annotations"]}
    probable = {number: f for number, f in findings.items() if f.probability >= 0.5}
    named, total = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for number, kind in planted.items():
        total[kind] += 1
        named[kind] += number in findings and findings[number].kind == kind
    for row in removed:
        total["missing"] += 1
        named["missing"] += any(
            f.kind == "missing" and f.image_id == row["image_id"] and iou(f.proposal.box_xyxy, corners(row)) > 0.5
            for f in found.findings
        )
    # A model that misses 3 % of the objects cannot tell each label without an object from these.
    assert all(named[kind] >= 0.8 * total[kind] >= 4 for kind in KINDS), (named, total)
    wrong = sum(number not in planted for number in probable)
    assert wrong <= 0.02 * len(document["annotations"])
    for number, kind in planted.items():
        if kind in ("renamed", "mixed") and number in probable:
            proposal = probable[number].proposal
            assert proposal.desc == {1: "cat", 2: "dog", 3: "cow"}[truth[number]["category_id"]]
            assert iou(proposal.box_xyxy, corners(truth[number])) > 0.8


def test_answers_that_may_show_a_missing_label_lie_on_none_of_their_name(spoilt, said, monkeypatch):
    """One that hardly overlaps a label of its name may be that of another object, whatever else lies there."""
    document = spoilt[0]
    seen = []

    def judged(truth, detections, compared, answers_d, seed=0):
        seen.extend(answers_d.tolist())

    monkeypatch.setattr("coord_eval.review.reviewing.judged_by_planted_faults", judged)
    review(document, said)
    free = [
        d
        for d, row in enumerate(said)
        if not any(
            label["image_id"] == row["image_id"]
            and label["category_id"] == row["category_id"]
            and iou(corners(label), corners(row)) >= 0.5
            for label in document["annotations"]
        )
    ]
    assert seen == free and 0 < len(free) < len(said) / 2


def test_review_of_clean_labels_is_quiet_and_expects_few_faults(clean, said):
    found = review(clean, said)
    assert len(found.judged) == len(clean["annotations"])
    assert sum(f.probability >= 0.5 for f in found.findings) <= 0.01 * len(found.judged)
    assert sum(item.probability for item in found.judged) <= 0.03 * len(found.judged)
    order = [f.probability for f in found.findings]
    assert order == sorted(order, reverse=True)


@pytest.mark.slow
def test_review_by_answers_alone_says_how_much_of_its_figure_are_objects_that_the_model_misses(clean, said):
    """Of every fifth image the model says nothing: right labels, and none of them has an answer."""
    ids = {image["id"] for image in clean["images"][::5]}
    fewer = [row for row in said if row["image_id"] not in ids]
    missed = sum(label["image_id"] in ids for label in clean["annotations"])
    found = review(clean, fewer)
    (note,) = [note for note in found.notes if "judged by answers alone" in note]
    expected, among, labels = re.search(
        r"of the ([\d.]+) that.* wrong ([\d.]+) are among ([\d,]+) label", note
    ).groups()
    assert float(expected) == pytest.approx(sum(item.probability for item in found.judged), abs=0.06)
    assert int(labels.replace(",", "")) >= missed and float(among) <= float(expected)
    planted = found.rests_on["planted_faults"]
    assert planted > 100 and f"rests on {planted} faults planted" in note
    few = {**clean, "images": clean["images"][:20]}
    few["annotations"] = [label for label in clean["annotations"] if label["image_id"] < 20]
    told = review(few, [row for row in said if row["image_id"] < 20])
    assert told.rests_on["planted_faults"] == 0 and any("rests on simulated models" in note for note in told.notes)
    likelihoods = records(clean)
    assert not [note for note in review(clean, fewer, likelihoods=likelihoods).notes if "answers alone" in note]


@pytest.mark.parametrize("wrong", [0, 30])
def test_as_many_labels_are_expected_to_be_wrong_as_are_however_poor_the_detector(clean, spoilt, said, wrong):
    """It misses 15 % of the objects and names 10 % wrongly; constants of other models expect 29 and 52.

    The least share of faults that explains the labels is estimated: of few it may be half of the true one.
    """
    document, planted, _ = spoilt if wrong else (clean, {}, [])
    draw = np.random.default_rng(5)
    poor = [dict(row) for row in said if draw.random() > 0.12]
    for row in poor:
        if draw.random() < 0.1:
            row |= {"category_id": row["category_id"] % 3 + 1, "score": 0.7 * row["score"]}
    found = review(document, poor)
    assert len(planted) == wrong
    assert sum(item.probability for item in found.judged) == pytest.approx(wrong, abs=5 + wrong / 3)


@pytest.mark.slow
def test_model_that_does_not_know_the_labels_is_doubted(clean, said):
    elsewhere = [row | {"bbox": [0, 0, 9, 9]} for row in said]
    count = len(clean["annotations"])
    assert any(f"agree with 0 of {count:,} labels" in note for note in review(clean, elsewhere).notes)
    assert not any("agree with" in note for note in review(clean, said).notes)


@pytest.mark.slow
def test_review_orders_alike_whatever_the_scale_of_scores(spoilt, said):
    squeezed = [row | {"score": row["score"] ** 4 / 3} for row in said]
    first, second = review(spoilt[0], said), review(spoilt[0], squeezed)
    assert [item.probability for item in first.judged] == pytest.approx(
        [item.probability for item in second.judged], abs=1e-6
    )


def records(document, wrong_names=(), wrong_boxes=()):
    """Likelihoods of a model that is sure of all labels but the named ones."""
    seen, found = {}, []
    for row in document["annotations"]:
        place = seen[row["image_id"]] = seen.get(row["image_id"], -1) + 1
        name = ("cat", "dog", "cow")[row["category_id"] - 1]
        other = {"cat": "dog", "dog": "cow", "cow": "cat"}[name]
        p = 0.02 if row["id"] in wrong_names else 0.97
        mass = (0.9, 0.9, 0.01, 0.02) if row["id"] in wrong_boxes else (0.9, 0.95, 0.9, 0.9)
        logs = {name: float(np.log(p)), other: float(np.log(1 - p))}
        found.append(LabelLikelihood(row["image_id"], place, name, name_logprobs=logs, coord_window_mass=mass))
    return found


def test_likelihoods_raise_the_labels_that_the_model_finds_improbable(clean, said):
    unseen = [row for row in said if row["image_id"] > 1]  # for two images the model has no answer
    before, after = (
        {(f.image_id, f.object): f.probability for f in review(clean, unseen, likelihoods=given, least=0.0).findings}
        for given in (records(clean), records(clean, wrong_names={5}, wrong_boxes={9}))
    )
    ratio = {key: after[key] / before[key] for key in before if key[0] in (0, 1)}
    others = [value for key, value in ratio.items() if key not in {(0, 4), (1, 2)}]
    assert min(ratio[0, 4], ratio[1, 2]) > 1.25 * max(1.0, *others)


@pytest.mark.slow
def test_answer_without_a_label_counts_more_where_the_model_expects_another_object(clean, said):
    lost = clean | {"annotations": [row for row in clean["annotations"] if row["id"] != 5]}

    def missing(end):
        likely = [replace(r, end_logprob=end if r.image_id == 0 else -1e-6) for r in records(lost)]
        found = review(lost, said, likelihoods=likely, least=0.0).findings
        return max(f.probability for f in found if f.kind == "missing" and f.image_id == 0)

    assert missing(-5.0) > 1.2 * missing(-1e-6)


def test_likelihoods_are_written_and_read(tmp_path):
    items = [
        LabelLikelihood(7, 0, "cat", (0.1, 0.2, 0.5, 0.6), coord_logprobs=(-1.0, -2.0, -0.5, -0.1), window=5, fold=1),
        LabelLikelihood("b", 3, name_logprobs={"cat": -0.1, "dog": -2.4}, name_entropy=0.3),
    ]
    assert write_likelihoods(tmp_path / "l.jsonl", items) == 2
    assert read_likelihoods(tmp_path / "l.jsonl") == items


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"image_id": 1}', "line 1: object"),
        ('{"image_id": 1, "object": -1}', "object"),
        ('{"image_id": 1, "object": 0, "coord_logprobs": [0.5]}', "coord_logprobs"),
        ('{"image_id": 1, "object": 0, "coord_window_mass": [1.5]}', "coord_window_mass"),
        ('{"image_id": 1, "object": 0}\n{"image_id": 1, "object": 0}', "line 2"),
    ],
)
def test_faulty_likelihoods_are_named(tmp_path, line, message):
    path = tmp_path / "l.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=message):
        read_likelihoods(path)


def test_likelihoods_of_other_annotations_are_refused(clean, said):
    with pytest.raises(InputError, match="no such label"):
        review(clean, said, likelihoods=[LabelLikelihood(0, 99)])
    with pytest.raises(InputError, match="it is about 'zebra'"):
        review(clean, said, likelihoods=[LabelLikelihood(0, 0, "zebra")])


def test_crowd_regions_are_not_judged_and_answers_inside_are_not_missing(clean, said):
    region = {"id": 9999, "image_id": 0, "category_id": 1, "bbox": [0, 0, 600, 400], "area": 240000.0, "iscrowd": 1}
    document = clean | {"annotations": [region, *(a for a in clean["annotations"] if a["image_id"] != 0)]}
    found = review(document, said)
    assert all(item.image_id != 0 for item in found.judged)
    cats = [f for f in found.findings if f.image_id == 0 and f.proposal.desc == "cat"]
    assert cats == []
    assert any("crowd" in note for note in found.notes)


def test_spreads_of_the_answers_are_the_unit_of_their_distance_from_the_labels():
    """The same distance is usual for a vague answer and a fault beside a sharp one."""
    rng = np.random.default_rng(0)
    truth, predictions = [], []
    for i in range(80):
        box = [0.2, 0.2, 0.6, 0.6]
        is_vague = i % 2 == 0
        error = rng.normal(0, 0.03 if is_vague else 0.004, 4)
        if i in (40, 41):
            error = np.full(4, 0.04)
        answer = np.clip(np.round(1000 * (np.array(box) + error)), 0, 999).astype(int)
        text = "<obj_start>cat" + "".join(f"<|coord_{k}|>" for k in answer) + "<obj_end>"
        spread = [0.03 if is_vague else 0.004] * 4
        truth.append(
            {"image": f"{i}.jpg", "image_id": i, "width": 500, "height": 400, "objects": [{"desc": "cat", "bbox": box}]}
        )
        expected = [k / 1000 for k in answer.tolist()]
        predictions.append(
            {"image_id": i, "text": text, "coord_expected": expected, "coord_spread": spread, "desc_logprobs": [-0.01]}
        )
    found = review([Instance(**record) for record in truth], predictions)
    assert found.rests_on["spreads"]
    probability = {item.image_id: item.probability for item in found.judged}
    assert probability[41] > 0.5 > 5 * probability[40]


def test_a_calibration_says_what_the_scores_mean(clean, said):
    """Of answers whose calibrated scores are low, a contradiction says less."""
    document = clean | {"annotations": [dict(row) for row in clean["annotations"]]}
    wrong = document["annotations"][7]
    wrong["category_id"] = wrong["category_id"] % 3 + 1
    halved = Calibration(((0.0, 0.1), (1.0, 0.2)), "results", ThresholdCurve((), (), {}))
    plain, calibrated = (review(document, said, calibration=c, least=0.0) for c in (None, halved))
    first, second = (next(f for f in r.findings if (f.image_id, f.object) == (1, 1)) for r in (plain, calibrated))
    assert first.probability > 0.4 and second.evidence["rival"] < 0.2 < first.evidence["rival"]
    assert second.probability < first.probability
    assert calibrated.rests_on["calibrated"]


def test_labels_of_images_without_a_record_are_not_judged(clean):
    """An image that nobody asked about shows no miss; one with an empty answer does."""
    said = [{"image_id": row["id"], "text": "[]"} for row in clean["images"][:40]]
    asked = {answer["image_id"] for answer in said}
    found = review(clean, said)
    judged = [row["image_id"] for row in clean["annotations"] if row["image_id"] in asked]
    assert sorted(finding.image_id for finding in found.judged) == sorted(judged)
    assert not any("counts as an empty answer" in note for note in found.notes)
    others = len(clean["annotations"]) - len(judged)
    assert any(f"{others} labels are not judged" in note.replace(",", "") for note in found.notes)


CATS = [(image, 1 + place, [50.0 * place, 0, 40, 40]) for image in range(4) for place in range(2)]


def small(*more, objects=CATS, crowds=()):
    """Labels of a cat and a dog in each of four images, and answers in all their places."""
    truth = coco(*objects, *more, names=("cat", "dog"), images={i: f"{i}.png" for i in range(4)}, size=(200, 100))
    for n in crowds:
        truth["annotations"][n]["iscrowd"] = 1
    rows = [{"image_id": image, "category_id": kind, "bbox": box, "score": 0.5} for image, kind, box in CATS]
    return truth, rows


def told(found, words):
    return [note for note in found.notes if words in note]


def test_findings_begin_at_the_least_probability_and_hold_what_the_answer_says():
    """A cat that the model calls a dog: the proposal has the score of the predictions, whatever a map makes of it."""
    truth, rows = small(crowds=(7,))
    rows[0] |= {"category_id": 2, "score": 0.75}
    rows.append({"image_id": 3, "category_id": 1, "bbox": [150, 50, 40, 40], "score": 0.625})
    halved = Calibration(((0.0, 0.0), (1.0, 0.5)), "results", ThresholdCurve((), (), {}))
    for calibration in (None, halved):
        every = review(truth, rows, least=0, calibration=calibration)
        assert len(every.judged) == 7 and len(every.findings) >= 7
        first = next(f for f in every.findings if f.object == 0 and f.image_id == 0)
        assert (first.kind, first.image, first.label, first.box_xyxy) == ("renamed", "0.png", "cat", (0, 0, 40, 40))
        assert (first.answer, first.proposal.desc, first.proposal.score) == (0, "dog", 0.75)
        assert first.proposal.box_xyxy == (0, 0, 40, 40)
        assert {*first.evidence} == {
            "rival",
            "rival_iou",
            "deviation",
            *(f"p_{kind}" for kind in KINDS if kind != "missing"),
        }
        kinds = [first.evidence[f"p_{kind}"] for kind in KINDS if kind != "missing"]
        assert sum(kinds) == pytest.approx(first.probability) and max(kinds) == first.evidence["p_renamed"]
        (missing,) = [
            f for f in every.findings if f.kind == "missing" and f.image_id == 3 and f.proposal.score == 0.625
        ]
        assert (missing.object, missing.label, missing.box_xyxy, missing.answer) == (None, None, None, 2)
        assert 0 < missing.evidence["unmatched"] < 0.1  # of nine answers and fifty more
        assert missing.proposal.box_xyxy == (150, 50, 190, 90) and {*missing.evidence} == {"confidence", "unmatched"}
        if calibration:
            assert missing.evidence["confidence"] == pytest.approx(0.625 / 2, abs=1e-3)
            assert first.evidence["rival"] == pytest.approx(0.375, abs=1e-3) and told(every, "scores are calibrated")
        order = [f.probability for f in every.findings]
        assert order == sorted(order, reverse=True)
        for finding in (first, missing):  # at its own probability it is found, just above not
            for least, is_found in ((finding.probability, True), (np.nextafter(finding.probability, 1), False)):
                some = review(truth, rows, least=least, calibration=calibration)
                assert (finding in some.findings) == is_found
                assert some.judged == every.judged and some.rests_on["least"] == least
        facts = {"calibrated": calibration is not None, "spreads": False, "likelihoods": None, "planted_faults": 0}
        assert facts.items() <= every.rests_on.items() and every.rests_on["score_source"] == "results"
    # The answer that contradicts the label shows a missing one only where that is more probable.
    assert not [
        f for f in every.findings if f.kind == "missing" and f.image_id == 0 and f.probability < first.probability
    ]
    for least in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match=r"least: expected a probability in \[0, 1\]"):
            review(truth, rows, least=least)
    assert review(truth, rows, least=1.0).findings == ()
    with pytest.raises(InputError, match="for scores of the source stated, and these are of results"):
        review(truth, rows, calibration=replace(halved, score_source="stated"))
    text = '[{"bbox_2d": [0, 0, 200, 400], "label": "cat", "score": 0.5}]'
    stated = review(truth, [{"image_id": 0, "text": text}], calibration=replace(halved, score_source="stated"))
    assert stated.rests_on["score_source"] == "stated" and stated.rests_on["calibrated"]
    # Another name and another box: the proposal is that of the other name.
    for place, box in ((0, [0, 0, 40, 22]), (1, [50, 0, 40, 22])):
        rows[place] |= {"bbox": box, "category_id": 2 - place}
    mixed = [f for f in review(truth, rows, least=0).judged if f.image_id == 0]
    assert [(f.proposal.desc, f.proposal.box_xyxy[3]) for f in mixed if f.kind in ("renamed", "mixed")] != []
    assert all(f.kind != "mixed" or f.proposal.desc != f.label for f in mixed)


@pytest.mark.parametrize(("wrong", "is_told"), [(3, False), (4, False), (5, True)])
def test_a_model_is_doubted_that_agrees_with_less_than_half_of_the_labels(wrong, is_told):
    """Of eight labels; crowd regions, and whether answers lie in them, make no difference."""
    region = (0, 1, [150, 0, 40, 40])
    truth, rows = small(region, region, crowds=(8, 9))
    for row in rows[:wrong]:
        row["bbox"] = [0, 60, 10, 10]
    rows[-1]["bbox"] = [50.0, 0, 40, 20]  # an IoU of .5 still agrees
    notes = told(review(truth, rows), "agree with")
    assert bool(notes) == is_told
    assert not notes or f"agree with {8 - wrong} of 8 labels" in notes[0]


def test_notes_of_truth_and_answers_are_kept_and_those_of_no_use_are_told():
    truth, rows = small((0, 1, [150, 0, 40, 40]), crowds=(8,))
    truth["annotations"][0]["area"] = 5000.0  # more than its box
    found = review(truth, rows)
    assert told(found, "1 object states an area larger") and told(found, "1 crowd region is not judged")
    assert told(found, "judged by answers alone") and not told(found, "name of a label")
    none = review(truth, [])
    some = [{"image_id": 0, "text": "[]"}]
    assert told(review(truth, some), "1 object states an area larger")
    assert told(none, "no answer has a box") and not told(none, "answers alone") and not told(none, "agree with")
    cows = [{"image_id": 0, "text": '[{"bbox_2d": [0, 0, 200, 400], "label": "cow"}]'}]
    assert told(review(truth, cows), "answers say cow, labels cat, dog;")


def test_labels_of_images_that_nobody_asked_about_are_left_out_without_likelihoods_alone():
    truth, _ = small()
    some = [{"image_id": 0, "text": '[{"bbox_2d": [0, 0, 200, 400], "label": "cat"}]'}]
    likelihoods = [LabelLikelihood(image, place, name_logprobs={"cat": -1.0}) for image in range(4) for place in (0, 1)]
    assert len(review(truth, some).judged) == 2 and len(review(truth, some, likelihoods=likelihoods).judged) == 8
    assert len(review(truth, []).judged) == 8  # a list of boxes: nobody knows what was asked
    every = [*some, *({"image_id": n, "text": "[]"} for n in (1, 2, 3))]
    assert len(review(truth, every).judged) == 8 and not told(review(truth, every), "not judged")
    assert (
        review(truth, some).rests_on["likelihoods"] is None
        and review(truth, some, likelihoods=[]).rests_on["likelihoods"]
    )
    listed = review(truth, some, likelihoods=likelihoods[:7])
    assert told(listed, "1 label has no likelihood") and listed.rests_on["likelihoods"]
    assert listed.rests_on["likelihoods"] != review(truth, some, likelihoods=likelihoods).rests_on["likelihoods"]


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (("cat", [0, 0, 40, 40]), {"moved", "spurious"}),
        (("dog", [0, 0, 40, 40]), {"renamed", "spurious"}),
        (("dog", [0, 0, 40, 31]), {"renamed", "spurious"}),
        (("dog", [0, 0, 40, 29]), {"renamed", "mixed", "spurious"}),  # an IoU below .75
        (None, {"spurious"}),
    ],
)
@pytest.mark.parametrize("has_likelihoods", [False, True])
def test_a_label_has_the_kinds_of_faults_of_which_something_tells(answer, kinds, has_likelihoods):
    truth, rows = small()
    rows = rows[1:]
    if answer:
        rows.append({"image_id": 0, "category_id": 1 + (answer[0] == "dog"), "bbox": answer[1], "score": 0.5})
    given = [LabelLikelihood(0, 0, name_logprobs={"cat": -1.0})] if has_likelihoods else None
    (found,) = [f for f in review(truth, rows, least=0, likelihoods=given).findings if (f.image_id, f.object) == (0, 0)]
    possible = {name[2:] for name, value in found.evidence.items() if name.startswith("p_") and value > 0}
    assert possible == kinds | ({"renamed", "mixed"} if has_likelihoods else set())


def spoilt_photographs(truth, seed):
    """Of the labels each tenth is renamed, moved, spurious or both of the first; return labels and which are wrong."""
    draw = np.random.default_rng(seed)
    names = sorted({row["category_id"] for row in truth["annotations"]})
    size = {image["id"]: np.array([image["width"], image["height"]]) for image in truth["images"]}
    rows, wrong = [], []
    for n, given in enumerate(row for row in truth["annotations"] if not row.get("iscrowd")):
        is_wrong = (n + seed) % 10 == 0
        row, kind = dict(given, id=n), ("renamed", "moved", "spurious", "mixed")[n // 10 % 4] if is_wrong else None
        x, y, w, h = row["bbox"]
        if kind in ("renamed", "mixed"):
            row["category_id"] = next(k for k in draw.permutation(names).tolist() if k != given["category_id"])
        if kind in ("moved", "mixed"):
            row["bbox"] = [x + 0.3 * w, y, w, h]
        if kind == "spurious":
            row["category_id"] = int(draw.choice(names))
            row["bbox"] = [*(draw.random(2) * np.maximum(size[row["image_id"]] - (w, h), 0)).tolist(), w, h]
        rows.append(row)
        wrong.append(is_wrong)
    return truth | {"annotations": rows}, np.array(wrong)


@pytest.mark.shared
@pytest.mark.parametrize("detector", ["centernet", "nanodet"])
def test_faults_among_answers_of_a_real_detector_are_found_better_than_by_overlap(real_detectors, detector):
    """The rule is 1 - IoU with the best answer of the label's name; 184 labels, each tenth of them spoilt."""
    truth, results = real_detectors(detector)
    said = {}
    for row in results:
        said.setdefault((row["image_id"], row["category_id"]), []).append(corners(row))
    found_by = {"review": [], "overlap": []}
    for seed in (0, 3, 6):
        document, is_wrong = spoilt_photographs(truth, seed)
        found = review(document, results, least=0.0)
        of_label = by_id(document, found)
        values = {"review": [], "overlap": []}
        for row in document["annotations"]:
            there = said.get((row["image_id"], row["category_id"]), [])
            values["overlap"].append(1 - max((iou(box, corners(row)) for box in there), default=0.0))
            values["review"].append(of_label[row["id"]].probability)
        for method, value in ((method, np.array(list_of)) for method, list_of in values.items()):
            above = value[is_wrong][:, None] - value[~is_wrong]
            first = np.argsort(-value, kind="stable")[: is_wrong.sum()]
            found_by[method].append((((above > 0) + 0.5 * (above == 0)).mean(), is_wrong[first].mean()))
        assert all(item.answer is not None for item in found.findings if item.kind == "moved")
    (auroc, precision), (auroc_of_rule, precision_of_rule) = (np.mean(rows, axis=0) for rows in found_by.values())
    assert auroc > auroc_of_rule and precision > precision_of_rule + 0.1, found_by


def test_an_answer_without_a_label_is_judged_by_whether_its_own_image_goes_on():
    truth, rows = small()
    for image in (1, 3):
        rows.append({"image_id": image, "category_id": 1, "bbox": [150, 50, 40, 40], "score": 0.5})
    ends = {0: -0.01, 1: -0.01, 2: -0.01, 3: -6.0}
    likelihoods = [
        LabelLikelihood(n, place, name_logprobs={"cat": -0.1, "dog": -0.1}, end_logprob=end)
        for n, end in ends.items()
        for place in (0, 1)
    ]
    found = review(truth, rows, likelihoods=likelihoods, least=0).findings
    missing = {f.image_id: f.probability for f in found if f.kind == "missing"}
    assert {*missing} == {1, 3} and missing[3] > 1.2 * missing[1]
