"""What answers and likelihoods say of each label, on sets small enough to be computed by hand."""

import math

import numpy as np
import pytest
from coco_builder import coco

from coord_eval import Detections, InputError, load_ground_truth
from coord_eval.review import LabelLikelihood
from coord_eval.review.confidence import compare
from coord_eval.review.evidence import LABEL_FIGURES, gather, log_odds
from coord_eval.review.likelihood import goes_on, surprises
from coord_eval.review.probability import LABEL_KINDS, MOST_RATE, probabilities
from coord_eval.review.weights import GOES_ON, MISSING, WITH_LIKELIHOODS, WITHOUT

CAT, DOG = 1, 2


def truth_of(*objects, images=(1,), crowds=()):
    document = coco(*objects, names=("cat", "dog"), images=images, size=(1000, 1000))
    for place in crowds:
        document["annotations"][place]["iscrowd"] = 1
    return load_ground_truth(document)


def answers(truth, *rows):
    """Answers `(category, box, score)` of the first image; of the category 3 the name is unknown."""
    kinds, boxes, scores = zip(*rows, strict=True)
    nothing = np.zeros(len(rows), int)
    return Detections.of(truth, nothing, np.array(kinds) - 1, np.array(boxes, float), scores, nothing, ("cow",))


# Answers beside labels

A, B, FAR = [0, 0, 100, 100], [300, 0, 100, 100], [700, 700, 50, 50]


@pytest.mark.parametrize(
    ("rows", "partner", "rival"),
    [
        ([(CAT, A, 0.5)], 0, -1),
        ([(DOG, A, 0.5)], -1, 0),
        ([(CAT, [0, 0, 100, 20], 0.5)], 0, -1),  # an IoU of .2
        ([(CAT, [0, 0, 100, 19.9], 0.5)], -1, -1),
        ([(CAT, [0, 0, 100, 90], 0.4), (CAT, [0, 0, 100, 80], 0.6)], 1, -1),  # surer, and so nearer by both
        ([(CAT, [0, 0, 100, 40], 0.6), (CAT, A, 0.5)], 1, -1),
        ([(DOG, [0, 0, 100, 60], 0.5), (3, [0, 0, 100, 70], 0.5)], -1, 1),
        ([(CAT, A, 0.5), (CAT, [0, 0, 100, 90], 0.4), (DOG, A, 0.3)], 0, 2),
    ],
)
def test_partner_and_rival_of_a_label_are_the_surest_and_nearest_answers(rows, partner, rival):
    truth = truth_of((1, CAT, A), (1, CAT, B))
    found = compare(truth, answers(truth, *rows), calibrated=True)
    assert (found.partner_N[0], found.rival_N[0]) == (partner, rival)
    assert found.partner_N[1] == found.rival_N[1] == -1
    for answer_N, iou_N in ((found.partner_N, found.partner_iou_N), (found.rival_N, found.rival_iou_N)):
        heights = [rows[d][1][3] / 100 if d >= 0 else 0 for d in answer_N]
        assert iou_N == pytest.approx(heights)
    assert [d for d, n in enumerate(found.partner_D) if n >= 0] == [d for d in found.partner_N if d >= 0]
    assert found.confidence_D == pytest.approx([score for *_, score in rows])


def test_an_answer_that_supports_a_label_is_no_rival_of_another():
    truth = truth_of((1, CAT, A), (1, DOG, [0, 0, 100, 95]))
    found = compare(truth, answers(truth, (CAT, A, 0.9)), calibrated=True)
    assert (found.partner_N.tolist(), found.rival_N.tolist()) == ([0, -1], [-1, -1])
    assert found.beside_D == pytest.approx([0.95])


def test_crowd_regions_take_part_for_their_own_name_alone():
    """An answer inside a region of its name counts neither as right nor as wrong."""
    region = [500, 500, 400, 400]
    truth = truth_of((1, CAT, A), (1, CAT, region), crowds=(1,))
    rows = [
        (CAT, A, 0.9),
        (CAT, [500, 500, 90, 90], 0.8),
        (DOG, [700, 500, 90, 90], 0.7),
        (CAT, [450, 500, 100, 90], 0.6),
    ]
    found = compare(truth, answers(truth, *rows), calibrated=False)
    assert found.crowd_D == pytest.approx([0, 1, 0, 0.5]) and found.partner_N.tolist() == [0, -1]
    # Counted are the hit and the dog: the surest quarter is the hit alone.
    assert found.unmatched == pytest.approx((0 + 1) / (1 + 50))
    assert found.confidence_D[0] > found.confidence_D[2]
    alone = compare(truth, answers(truth, rows[0], rows[2]), calibrated=False)
    sure, unsure = found.confidence_D[[0, 2]]
    assert sure > 0.5 > unsure and alone.confidence_D[0] > 0.5 > alone.confidence_D[1]
    evidence = gather(truth, answers(truth, *rows), found, None, None)
    assert evidence.answers_d.tolist() == [2]  # what may be a missing label


def test_confidence_is_the_share_of_supported_answers_of_similar_score_unless_scores_are_calibrated():
    boxes = [[100.0 * (n % 10), 100.0 * (n // 10), 50, 50] for n in range(80)]
    truth = truth_of(*((1, CAT, box) for box in boxes[:60]))
    rows = [(CAT, box, 100 + n) for n, box in enumerate(boxes[::-1])]  # the 20 lowest scores have no label
    plain = compare(truth, answers(truth, *rows), calibrated=False).confidence_D
    assert (np.diff(plain) >= 0).all() and plain[:10].max() < 0.1 and plain[-30:].min() > 0.9
    given = compare(truth, answers(truth, *((k, box, s / 200) for k, box, s in rows)), calibrated=True).confidence_D
    assert given == pytest.approx([s / 200 for *_, s in rows])
    ends = compare(truth, answers(truth, (CAT, A, 1.0), (CAT, B, 0.0)), calibrated=True).confidence_D
    assert ends.tolist() == [0.995, 0.005]


# Figures of labels


def evidence_of(truth, rows, spread_D4=None, likelihoods=None):
    detections = answers(truth, *rows)
    found = gather(truth, detections, compare(truth, detections, True), spread_D4, likelihoods)
    columns = dict(zip(LABEL_FIGURES, found.figures_NF.T, strict=True))
    return found, columns


def test_figures_of_a_label_are_those_of_the_answers_beside_it():
    objects = [(1, CAT, A), (1, CAT, B), (1, CAT, [600, 0, 100, 100]), (1, CAT, [0, 300, 100, 100])]
    truth = truth_of(*objects)
    rows = [
        (CAT, A, 0.9), (DOG, [0, 0, 100, 50], 0.6), (DOG, [300, 0, 100, 49], 0.7), (CAT, [600, 0, 100, 40], 0.8)
    ]  # fmt: skip
    found, figures = evidence_of(truth, rows)
    none = 0.02
    expected = {
        "support": [0.9, none, 0.8, none],
        "rival": [0.6, none, none, none],
        "rival_beside": [none, 0.7, none, none],
    }
    for name, shares in expected.items():
        assert figures[name] == pytest.approx(log_odds(np.array(shares))), name
    # Of four labels of one size one is supported by an IoU of .5: a miss is no surprise.
    missed = 1 - (1 + 1) / (4 + 2)
    assert figures["missed"] == pytest.approx([0, 0, 0, -math.log(missed)])
    named = found.named_N
    nan = math.nan
    for name, values in {
        "support": [0.9, nan, 0.8, nan], "support_iou": [1, nan, 0.4, nan], "rival": [0.6, 0.7, nan, nan],
        "rival_iou": [0.5, 0.49, nan, nan], "miss_rate": [nan, nan, nan, missed], "twin_iou": [nan] * 4,
        "name_surprise": [nan] * 4, "box_surprise": [nan] * 4,
    }.items():  # fmt: skip
        assert named[name] == pytest.approx(values, nan_ok=True), name
    # Usual is the deviation of sure pairs, of at least .01 of a side; three times as far in height: 60 of 100.
    off = math.sqrt((0.6**2) / 4)
    assert named["deviation"][[0, 2]] == pytest.approx([math.exp(-1), min(off / 0.01, math.exp(4))])
    assert figures["deviation"][[0, 3]] == pytest.approx([-0.9, 0])
    # Where an answer of another name alone lies near, its distance counts; at 49 of a height of 100.
    off = math.sqrt(0.51**2 / 4)
    assert named["deviation"][1] == pytest.approx(off / 0.01)
    assert figures["deviation"][1] == pytest.approx(math.log(off / 0.01) * 0.7)
    assert figures["contradicted"] == pytest.approx([math.log((0 + 1) / (4 + 50))] * 4)
    surer = [(CAT, A, 0.5), (DOG, [0, 0, 100, 50], 0.6), (CAT, B, 0.6), (DOG, [300, 0, 100, 50], 0.6)]
    crowded = truth_of(*objects, (1, CAT, FAR), crowds=(4,))
    assert evidence_of(crowded, surer)[1]["contradicted"][0] == pytest.approx(math.log((1 + 1) / (4 + 50)))
    told, columns = evidence_of(truth, rows, likelihoods=(np.arange(4.0), -np.arange(4.0)))
    assert columns["name_surprise"].tolist() == told.named_N["name_surprise"].tolist() == [0, 1, 2, 3]
    assert columns["box_surprise"].tolist() == told.named_N["box_surprise"].tolist() == [0, -1, -2, -3]


def test_spreads_of_the_own_answer_are_the_unit_of_its_distance():
    """Fifty off at a side of a hundred: in sizes, in spreads, and where a spread is unknown or next to nothing."""
    truth = truth_of((1, CAT, A), (1, CAT, B))
    rows = [(CAT, FAR, 0.2), (CAT, [0, 0, 100, 50], 0.9), (CAT, B, 0.9)]
    nan = math.nan
    for spread, unit in (([9, 9, 9, 25], 25), ([nan] * 4, 100), ([nan, nan, nan, 25], 25), ([9, 9, 9, 0.001], 1)):
        spreads_D4 = np.array([[7.0] * 4, spread, [50.0] * 4])
        deviation = evidence_of(truth, rows, spreads_D4)[0].named_N["deviation"][0]
        usual = max(50 / unit / 2 / 2, 0.01)  # the median of this pair and of one without any distance
        assert deviation == pytest.approx(50 / unit / 2 / usual)


def test_twin_of_a_label_is_the_other_one_of_its_name_with_the_better_answer():
    near = [0, 0, 100, 80]
    for objects, rows, twins in (
        ([(1, CAT, A), (1, CAT, near)], [(CAT, A, 0.9)], [-1, 0]),
        ([(1, CAT, A), (1, CAT, near)], [(CAT, near, 0.9)], [1, -1]),
        ([(1, CAT, A), (1, CAT, near)], [(DOG, FAR, 0.9)], [-1, 0]),  # of two alike the second
        ([(1, CAT, A), (1, DOG, near)], [(CAT, A, 0.9)], [-1, -1]),
        ([(1, CAT, A), (1, CAT, [0, 0, 100, 49])], [(CAT, A, 0.9)], [-1, -1]),
        ([(1, CAT, A), (1, CAT, [0, 0, 100, 50])], [(CAT, A, 0.9)], [-1, 0]),
    ):
        found, figures = evidence_of(truth_of(*objects), rows)
        assert found.twin_N.tolist() == twins
        iou = min(o[2][3] for o in objects) / 100
        shares = [0 if twin < 0 else iou for twin in twins]
        assert figures["twin"] == pytest.approx(log_odds(np.array(shares)))
    for crowd in (0, 1):
        truth = truth_of((1, CAT, A), (1, CAT, near), crowds=(crowd,))
        assert evidence_of(truth, [(DOG, FAR, 0.9)])[0].twin_N.tolist() == [-1, -1]


# Likelihoods


def odds(p):
    return math.log(p / (1 - p))


def likelihood(place, image=1, **fields):
    return LabelLikelihood(image, place, **fields)


def test_surprises_are_odds_against_name_and_box_less_those_usual_in_the_set():
    truth = truth_of(*((1, CAT, [100.0 * n, 0, 50, 50]) for n in range(5)), crowds=(4,))
    mass = [(0.9, 0.5, 0.2, 0.8), (0.9,) * 4, (0.5,) * 4]
    records = [
        likelihood(0, name_logprobs={"cat": math.log(0.9), "dog": math.log(0.1)}, coord_window_mass=mass[0]),
        likelihood(1, name_logprobs={"dog": -0.1}, coord_window_mass=mass[1], coord_logprobs=(-9.0,) * 4),
        likelihood(2, desc="cat", name_logprob_mean=math.log(0.5), coord_window_mass=mass[2]),
        likelihood(3, name_logprob_mean=math.log(0.5), coord_logprobs=(-1.0, -2.0, -3.0, -0.5)),
    ]
    (name_N, box_N), told = surprises(truth, records)
    # A name that a closed set lacks has the probability 0; without its name a mean says nothing.
    name = [-odds(0.9), -odds(1e-4), -odds(0.5)]
    usual = sorted(name)[1]
    assert name_N == pytest.approx([*(np.clip(value - usual, -4, 12) for value in name), 0, 0])
    box = [-(odds(0.2) + odds(0.5)) / 2, -odds(0.9), 0.0, 2.5]  # of the two most improbable sides
    usual = (sorted(box)[1] + sorted(box)[2]) / 2
    assert box_N == pytest.approx([*(value - usual for value in box), 0]) and told == []
    for fewer, count in ((records[:3], "1 label has"), (records[:2], "2 labels have")):
        assert surprises(truth, fewer)[1] == [f"{count} no likelihood and are judged by the answers alone"]
    half = [likelihood(0, coord_logprobs=(-1.0,)), *records[1:]]
    assert surprises(truth, half)[1] == [] and surprises(truth, half)[0][0][0] == 0
    far = [likelihood(n, name_logprobs={"cat": -1e-9 if n < 3 else -30.0}) for n in range(4)]
    assert surprises(truth, far)[0][0].tolist() == [0, 0, 0, 12, 0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"desc": "dog"}, "image 1, object 0: it is about 'dog', and the ground truth has 'cat' there"),
        ({"desc": "dog", "name_logprobs": {"cat": -1.0}}, "it is about 'dog'"),
        (
            {"bbox": (0.0, 0.0, 0.1, 0.121)},
            r"it is about the box \[0.0, 0.0, 0.1, 0.121\], and .* \[0.0, 0.0, 0.1, 0.1\]",
        ),
        ({"bbox": (0.0, 0.0, 0.1)}, "it is about the box"),
        ({"bbox": (0.0, 0.0, 0.1, 0.119), "desc": "cat"}, None),
    ],
)
def test_likelihoods_of_another_name_or_box_are_refused(fields, message):
    truth = truth_of((1, CAT, A))
    for image, place in ((9, 0), (1, 1)):
        with pytest.raises(InputError, match=f"image {image}, object {place}: the ground truth has no such label"):
            surprises(truth, [likelihood(place, image)])
    if message is None:
        assert surprises(truth, [likelihood(0, **fields)])[1]
        return
    with pytest.raises(InputError, match=message):
        surprises(truth, [likelihood(0, **fields)])


def test_whether_an_answer_goes_on_is_by_image_and_unknown_without_a_record():
    truth = truth_of(*((n, CAT, A) for n in (1, 2, 3, 4)), images=(1, 2, 3, 4))
    ends = {1: 0.9, 2: 0.5, 4: 0.01}
    records = [likelihood(0, n, end_logprob=math.log(p)) for n, p in ends.items()] + [likelihood(0, 3)]
    found = goes_on(truth, records)
    assert found == pytest.approx([-odds(0.9), 0, math.nan, -odds(0.01)], nan_ok=True)


def test_names_have_the_probability_of_the_closed_set_and_known_fields_are_written():
    record = likelihood(0, desc="cat", name_logprobs={"cat": 0.0}, window=0, fold=0, name_logprob_mean=-1.0)
    assert [record.name_probability(name) for name in ("cat", "dog")] == [1, 0]
    alone = likelihood(0, desc="cat", name_logprob_mean=-1.0)
    assert [alone.name_probability(name) for name in ("cat", "dog")] == [pytest.approx(math.exp(-1)), None]
    fields = {"image_id": 1, "object": 0, "desc": "cat", "name_logprobs": {"cat": 0.0}, "window": 0, "fold": 0}
    assert record.to_dict() == {**fields, "name_logprob_mean": -1.0}


# From figures to probabilities


@pytest.mark.parametrize("with_likelihoods", [False, True])
def test_probabilities_are_those_of_bayes_at_the_rates_of_the_set(with_likelihoods):
    """Expectation maximisation in loops; the rate of spurious labels is estimated with likelihoods alone."""
    weights = WITH_LIKELIHOODS if with_likelihoods else WITHOUT
    draw = np.random.default_rng(0)
    figures_NF = draw.normal(0, 2, (40, 9))
    judged_N = np.arange(40) % 5 > 0
    figures_dF = draw.normal(0, 1, (3, 4))
    goes_on_d = np.array([1.0, math.nan, -2.0])
    found = probabilities(figures_NF, figures_dF, judged_N, with_likelihoods, goes_on_d)
    rates = list(weights.rates)
    ratios = [
        [
            math.exp(np.clip(np.dot(row, f) + bias, -30, 30))
            for row, bias in zip(weights.figures, weights.bias, strict=True)
        ]
        for f in figures_NF[judged_N]
    ]
    for _ in range(50):
        odds_nK = [[r * p / (1 - sum(rates)) for r, p in zip(own, rates, strict=True)] for own in ratios]
        kinds = [[value / (1 + sum(own)) for value in own] for own in odds_nK]
        sums = [sum(own[k] for own in kinds) for k in range(5)]
        adapted = [min((s + 20 * p) / (len(ratios) + 20), MOST_RATE) for s, p in zip(sums, weights.rates, strict=True)]
        if not with_likelihoods:
            adapted[LABEL_KINDS.index("spurious")] = weights.rates[LABEL_KINDS.index("spurious")]
        rates = adapted
    assert found.kind_NK[judged_N] == pytest.approx(np.array(kinds)) and not found.kind_NK[~judged_N].any()
    assert max(rates) == MOST_RATE and [found.rates[kind] for kind in LABEL_KINDS] == pytest.approx(rates)
    logits = [np.dot(MISSING.figures, f) + MISSING.bias for f in figures_dF]
    more = [0 if math.isnan(value) else GOES_ON[0] * value + GOES_ON[1] for value in goes_on_d]
    missing = [1 / (1 + math.exp(-a - b)) for a, b in zip(logits, more, strict=True)]
    assert found.missing_d == pytest.approx(missing)
    assert found.rates["missing"] == pytest.approx(sum(missing) / (sum(missing) + judged_N.sum()))
    plain = probabilities(figures_NF, figures_dF, judged_N, with_likelihoods)
    assert plain.missing_d == pytest.approx([1 / (1 + math.exp(-a)) for a in logits])


def test_figures_of_an_answer_without_a_label_are_its_confidence_and_what_lies_beside_it():
    """Repeats of a better answer of its name, one with a label first, and a label of another name."""
    truth = truth_of((1, CAT, A), (1, DOG, B))
    rows = [
        (CAT, A, 0.5), (CAT, [0, 0, 100, 60], 0.9), (CAT, [300, 0, 100, 40], 0.8), (CAT, FAR, 0.7), (CAT, FAR, 0.6),
        (CAT, [700, 700, 50, 9], 0.5), (DOG, FAR, 0.4),
    ]  # fmt: skip
    detections = answers(truth, *rows)
    compared = compare(truth, detections, True)
    found = gather(truth, detections, compared, None, None)
    assert compared.partner_D.tolist() == [-1, 0, -1, -1, -1, -1, -1]
    assert found.answers_d.tolist() == [0, 2, 3, 4, 5, 6]
    unmatched = math.log((1 + 1) / (2 + 50))  # of the surest quarter, two answers, one has no label
    repeat, beside = [0.6, 0, 0, 1, 0, 0], [0, 0.4, 0, 0, 0, 0]
    expected = [
        log_odds(np.array([rows[d][2] for d in found.answers_d])), np.full(6, unmatched), log_odds(np.array(repeat)),
        log_odds(np.array(beside)),
    ]  # fmt: skip
    assert found.figures_dF == pytest.approx(np.stack(expected, axis=1))
    # The answer that a label supports is the better one, also if it is less sure.
    detections = answers(truth, (CAT, A, 0.5), (CAT, [0, 0, 100, 50], 0.9))
    found = gather(truth, detections, compare(truth, detections, True), None, None)
    assert found.answers_d.tolist() == [1] and found.figures_dF[0, 2] == pytest.approx(0.0)


def test_of_several_twins_the_nearest_counts():
    objects = [(1, CAT, A), (1, CAT, [0, 0, 100, 90]), (1, CAT, [0, 0, 100, 70])]
    for order in ((0, 1, 2), (0, 2, 1)):
        truth = truth_of(*(objects[n] for n in order))
        found, _ = evidence_of(truth, [(CAT, A, 0.9)])
        assert found.twin_N.tolist() == ([-1, 0, 1] if order == (0, 1, 2) else [-1, 0, 0])
