"""The readable form of the objective against naive sums, one row at a time."""

import gc

import pytest
import torch
from one_batch import F64, OBJECTS, VOCAB, V
from one_batch import TARGETS as BATCH
from torch.utils._python_dispatch import TorchDispatchMode

from coord_losses import (
    CoordObjective,
    ObjectiveConfig,
    ObjectSlots,
    box_loss,
    denominator_of,
    soft_targets,
    supervised_rows,
)
from coord_losses.terms.registry import registered_terms

TARGETS = BATCH.clone().index_fill(0, torch.tensor(11), 0)  # the last one is text
EVERYTHING = ObjectiveConfig(
    text_weight=0.5,
    coord_ce_weight=0.7,
    soft_ce_weight=1.1,
    w1_weight=1.3,
    gate_weight=1.7,
    box_weight=1.9,
    alpha_l1=2.0,
    beta_giou=0.6,
    temperature=0.8,
    expectation_temperature=1.5,
    target_sigma=1.2,
    target_truncate=4,
)


def logits_of(targets, seed=0, dtype=F64):
    return 2 * torch.randn(len(targets), V, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def naive_terms(logits, targets, objects, c):
    """Every term row by row, in plain sums."""
    terms = dict.fromkeys(["text_ce", "coord_ce", "soft_ce", "w1", "gate", "box"], 0.0)
    decoded = {}
    for n, (row, target) in enumerate(zip(logits, targets.tolist(), strict=True)):
        log_p = torch.log(row.exp() / row.exp().sum())
        nll = -(1 - c.label_smoothing) * log_p[target] - c.label_smoothing * sum(log_p) / V
        if target not in VOCAB.ids:
            terms["text_ce"] += nll
            continue
        terms["coord_ce"] += nll
        coord = row[20:70]
        p = (coord / c.temperature).exp() / (coord / c.temperature).exp().sum()
        q = soft_targets(torch.tensor([target - 20]), 50, c.target_sigma, c.target_truncate, F64)[0]
        terms["soft_ce"] -= sum(q[k] * p[k].log() for k in range(50) if q[k])
        terms["w1"] += sum(abs(p[: k + 1].sum() - q[: k + 1].sum()) for k in range(50)) / 49
        full = (row / c.temperature).exp()
        terms["gate"] -= (full[20:70].sum() / full.sum()).log()
        hot = (coord / c.expectation_temperature).exp()
        decoded[n] = sum(hot[k] / hot.sum() * k / 50 for k in range(50))
    for rows, box in zip(objects.rows_M4.tolist(), objects.boxes_M4, strict=True):
        pred = torch.stack([decoded[n] for n in rows])
        terms["box"] += box_loss(pred[None], box[None], c.alpha_l1, c.beta_giou).sum
    return terms


def naive_diagnostics(logits, targets, terms):
    """Every diagnostic, of which some are terms as well."""
    rows = [n for n, t in enumerate(targets.tolist()) if t in VOCAB.ids]
    p = torch.softmax(logits[rows, 20:70], 1)
    return {
        "coord_vocab_mass": torch.softmax(logits[rows], 1)[:, 20:70].sum(),
        "coord_entropy": -(p * p.log()).sum(),
        "coord_error_bins": sum(
            p[i, k] * abs(k - (targets[n].item() - 20)) for i, n in enumerate(rows) for k in range(50)
        ),
        **{name: terms[name] for name in ("soft_ce", "w1", "gate")},
        "coord_token_ce": terms["coord_ce"],
    }


@pytest.mark.parametrize("changes", [{}, {"label_smoothing": 0.2}], ids=str)
def test_terms_total_and_gradient_equal_naive_sums(changes):
    logits = logits_of(TARGETS).requires_grad_()
    config = EVERYTHING.model_copy(update=changes)
    output = CoordObjective(config, VOCAB)(logits, TARGETS, OBJECTS)
    expected = naive_terms(logits, TARGETS, OBJECTS, config)
    assert list(output.terms) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(output.terms[name].sum, value, rtol=1e-12, atol=1e-12)
    assert {k: v.item() for k, v in output.counts.items()} == {"tokens": 12, "coord_tokens": 8, "objects": 2}
    assert [output.terms[k].count.item() for k in expected] == [4, 8, 8, 8, 8, 2]

    total = (
        (0.5 * expected["text_ce"] + 0.7 * expected["coord_ce"]) / 12
        + (1.1 * expected["soft_ce"] + 1.3 * expected["w1"] + 1.7 * expected["gate"]) / 8
        + 1.9 * expected["box"] / 2
    )
    torch.testing.assert_close(output.total(), total, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (output.total(), total)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_total_takes_global_denominators():
    output = CoordObjective(EVERYTHING, VOCAB)(logits_of(TARGETS), TARGETS, OBJECTS)
    s = {name: term.sum for name, term in output.terms.items()}
    expected = (
        (0.5 * s["text_ce"] + 0.7 * s["coord_ce"]) / 100
        + (1.1 * s["soft_ce"] + 1.3 * s["w1"] + 1.7 * s["gate"]) / 40
        + 1.9 * s["box"] / 7
    )
    denominators = {"tokens": 100, "coord_tokens": torch.tensor(40), "objects": 7.0}
    torch.testing.assert_close(output.total(denominators), expected)
    torch.testing.assert_close(sum(output.weighted(denominators).values()), expected)
    with pytest.raises(ValueError, match="'coord_tokens'"):
        output.total({"tokens": 1, "objects": 1})


def test_micro_batches_add_up_to_the_full_batch():
    logits = logits_of(TARGETS)
    objective = CoordObjective(EVERYTHING, VOCAB)
    whole = objective(logits, TARGETS, OBJECTS)
    parts = []
    for rows, slots in ((slice(0, 6), slice(0, 1)), (slice(6, 12), slice(1, 2))):
        own = ObjectSlots(OBJECTS.rows_M4[slots] - rows.start, OBJECTS.boxes_M4[slots], OBJECTS.image_M[slots])
        parts.append(objective(logits[rows], TARGETS[rows], own))
    torch.testing.assert_close(sum(p.total(whole.counts) for p in parts), whole.total())


class TinyOutput:
    """What Hugging Face's loss sees: logits of a padded batch, unshifted, and labels."""

    labels = torch.tensor([[-100, -100, 3, 25, 26, 69, 74], [-100, 5, 20, 21, 1, -100, -100]])
    logits = torch.randn(2, 7, V, generator=torch.Generator().manual_seed(1))


def test_group_a_equals_hugging_face_cross_entropy():
    loss_utils = pytest.importorskip("transformers.loss.loss_utils", reason="Hugging Face's loss")

    ours, theirs = (TinyOutput.logits.clone().requires_grad_() for _ in range(2))
    expected = loss_utils.ForCausalLMLoss(theirs, TinyOutput.labels, V)
    total = CoordObjective(ObjectiveConfig.group_a(), VOCAB)(*supervised_rows(ours, TinyOutput.labels)).total()
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-7)
    total.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)

    scaled = loss_utils.ForCausalLMLoss(theirs, TinyOutput.labels, V, num_items_in_batch=40)
    output = CoordObjective(ObjectiveConfig.group_a(), VOCAB)(*supervised_rows(ours, TinyOutput.labels))
    torch.testing.assert_close(output.total({"tokens": 40}), scaled, rtol=1e-6, atol=1e-7)


def test_group_c_without_box_equals_group_a():
    logits = logits_of(TARGETS)
    a = CoordObjective(ObjectiveConfig.group_a(), VOCAB)(logits, TARGETS, OBJECTS)
    c = CoordObjective(ObjectiveConfig.group_c(box_weight=0.0), VOCAB)(logits, TARGETS, OBJECTS)
    assert torch.equal(a.total(), c.total())
    assert list(c.terms) == ["text_ce", "coord_ce"]


def test_text_gradient_has_the_same_scale_in_every_group():
    gradients = []
    for name in ObjectiveConfig.presets():
        logits = logits_of(TARGETS).requires_grad_()
        config = getattr(ObjectiveConfig, name)()
        CoordObjective(config, VOCAB)(logits, TARGETS, OBJECTS).total().backward()
        gradients.append(logits.grad[[0, 5, 6, 11]])
    for gradient in gradients[1:]:
        assert torch.equal(gradient, gradients[0])


def test_presets_compute_their_terms_and_no_other():
    specified = {
        "soft": {"text_ce", "soft_ce", "w1", "gate"},
        "group_a": {"text_ce", "coord_ce"},
        "group_b": {"text_ce", "box"},
        "group_c": {"text_ce", "coord_ce", "box"},
        "mixed": {"text_ce", "coord_ce", "soft_ce", "w1", "gate"},
    }
    assert specified.keys() <= ObjectiveConfig.presets().keys()
    for name, terms in specified.items():
        output = CoordObjective(getattr(ObjectiveConfig, name)(), VOCAB)(logits_of(TARGETS), TARGETS, OBJECTS)
        assert set(output.terms) == terms
        assert set(output.weights.values()) == {1.0}


@pytest.mark.parametrize("targets", [[], [3, 4, 0], [20, 69]], ids=["nothing", "no coordinates", "no text"])
@pytest.mark.parametrize("objects", [None, ObjectSlots(torch.empty(0, 4).long(), torch.empty(0, 4), torch.empty(0))])
def test_missing_tokens_or_objects_add_zero_and_keep_the_graph(targets, objects):
    targets = torch.tensor(targets, dtype=torch.long)
    logits = logits_of(targets).requires_grad_()
    output = CoordObjective(EVERYTHING, VOCAB)(logits, targets, objects)
    for term in output.terms.values():
        assert term.sum.requires_grad
        assert torch.isfinite(term.sum)
        if term.count == 0:
            assert term.sum == 0
    output.total().backward()
    assert torch.isfinite(output.total())
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(dtype):
    logits = torch.zeros(len(TARGETS), V)
    logits[0], logits[1, 74], logits[2, 20:], logits[3, 40], logits[5, 4] = -1e4, 1e4, 1e4, 1e4, -1e4
    logits = logits.to(dtype).requires_grad_()
    output = CoordObjective(EVERYTHING, VOCAB)(logits, TARGETS, OBJECTS)
    output.total().backward()
    assert output.total().dtype == torch.float32
    assert torch.isfinite(output.total())
    assert torch.isfinite(logits.grad).all()


BUILT_IN = {*registered_terms()}
"""Names of all terms before a test, or an example of a page, registers one of its own."""


@pytest.mark.parametrize("form", ["readable", "fused"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_term_has_its_value_where_logits_are_200_apart(form, dtype):
    """Probabilities of e^-200 are 0 in float32, and their logarithms and products with them have to be right."""
    draw = torch.Generator().manual_seed(0)
    logits = 100 * torch.randint(-1, 2, (len(TARGETS), V), generator=draw, dtype=F64)
    logits[1:3, 20:70], logits[1:3, :20], logits[1:3, 70:] = -100, 100, 100  # no coordinate is likely
    expected = naive_terms(logits, TARGETS, OBJECTS, EVERYTHING)
    given = logits.to(dtype).requires_grad_()
    if form == "readable":
        found = CoordObjective(EVERYTHING, VOCAB)(given, TARGETS, OBJECTS)
    else:  # the hidden states choose the rows of the weight
        found = CoordObjective(EVERYTHING, VOCAB).fused(torch.eye(len(TARGETS), dtype=dtype), given.T, TARGETS, OBJECTS)
    told = naive_diagnostics(logits, TARGETS, expected)
    assert {*found.terms, *found.diagnostics()} == {*expected, *told} == BUILT_IN
    for terms, values in ((found.terms, expected), (found.diagnostics(), told)):
        for name, value in values.items():
            assert terms[name].sum.item() == pytest.approx(float(value), rel=1e-4), name
    found.total().backward()
    assert torch.isfinite(given.grad).all()


class LargestTensor(TorchDispatchMode):
    """Records the largest output of any operation that is no view of the logits, in elements."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.elements = logits.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() != self.logits:
            self.elements = max(self.elements, out.numel())
        return out


@pytest.mark.slow
def test_readable_form_copies_no_logits_for_diagnostics_nobody_asked_for():
    logits = logits_of(TARGETS, dtype=torch.float32)
    config = ObjectiveConfig(text_weight=0.0, soft_ce_weight=1.0, w1_weight=1.0, box_weight=1.0)
    objective = CoordObjective(config, VOCAB)
    with LargestTensor(logits) as seen:
        output = objective(logits, TARGETS, OBJECTS)
    assert seen.elements <= 8 * 50  # coordinate rows and columns alone
    with LargestTensor(logits) as seen:
        output.diagnostics()
    assert seen.elements == 8 * V

    with torch.no_grad():  # nothing is kept for the backward pass, so what lives on is kept for diagnostics
        output = CoordObjective(EVERYTHING, VOCAB)(logits, TARGETS, OBJECTS)
    gc.collect()
    kept = [x for x in gc.get_referents(*gc.get_objects()) if type(x) is torch.Tensor and x.numel() == 8 * V]
    assert not kept
    assert output.diagnostics()["gate"].count == 8


def test_objective_without_vocab_treats_all_tokens_as_text():
    logits = logits_of(TARGETS).requires_grad_()
    objective = CoordObjective(ObjectiveConfig(text_weight=0.5), None)
    hidden, weight = torch.randn(12, 6, dtype=F64), torch.randn(V, 6, dtype=F64).requires_grad_()
    for rows, found in (
        (logits, objective(logits, TARGETS)),
        (hidden @ weight.T, objective.fused(hidden, weight, TARGETS, chunk_rows=5)),
    ):
        naive = -torch.log_softmax(rows, 1)[range(12), TARGETS].sum()
        assert found.total().item() == pytest.approx(0.5 * naive.item() / 12, rel=1e-10)
        assert {name: int(count) for name, count in found.counts.items()} == {
            "tokens": 12,
            "coord_tokens": 0,
            "objects": 0,
        }
        assert found.diagnostics() == {}
        found.total().backward()
    with pytest.raises(ValueError, match="vocab is None, but soft_ce has a weight"):
        CoordObjective(ObjectiveConfig(soft_ce_weight=1.0), None)


def test_diagnostics_equal_naive_sums():
    logits = logits_of(TARGETS).requires_grad_()
    config = ObjectiveConfig.group_a(temperature=0.8, target_sigma=1.2, target_truncate=4)
    found = CoordObjective(config, VOCAB)(logits, TARGETS, OBJECTS).diagnostics()
    expected = naive_diagnostics(logits, TARGETS, naive_terms(logits, TARGETS, OBJECTS, EVERYTHING))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].sum.item() == pytest.approx(value.item(), rel=1e-10)
        assert found[name].count.item() == 8
        assert not found[name].sum.requires_grad


def test_denominator_of_names_the_count():
    assert [denominator_of(t) for t in ("text_ce", "coord_ce", "gate", "box")] == [
        "tokens",
        "tokens",
        "coord_tokens",
        "objects",
    ]
    with pytest.raises(ValueError, match="soft_ce"):
        denominator_of("softce")


def test_objective_errors_name_the_cause():
    objective = CoordObjective(EVERYTHING, VOCAB)
    logits = logits_of(TARGETS)
    with pytest.raises(ValueError, match=r"\[12\]"):
        objective(logits, TARGETS[:-1])
    with pytest.raises(ValueError, match="supervised_rows"):
        objective(logits, torch.where(TARGETS == 3, -100, TARGETS))
    with pytest.raises(ValueError, match="expanded"):
        objective(logits[:, :60], TARGETS.clamp(max=59))
    with pytest.raises(ValueError, match="expanded"):
        objective(logits[:, : TARGETS.max()], TARGETS)
    with pytest.raises(ValueError, match=r"\[N, V\].*supervised_rows"):
        objective(logits[None], TARGETS[None])
    with pytest.raises(ValueError, match=r"labels\.long"):
        objective(logits, TARGETS.int())
    with pytest.raises(ValueError, match="no coordinate token"):
        objective(logits, TARGETS, ObjectSlots(OBJECTS.rows_M4 - 1, OBJECTS.boxes_M4, OBJECTS.image_M))
    with pytest.raises(ValueError, match="the batch has 12"):
        objective(logits, TARGETS, ObjectSlots(OBJECTS.rows_M4 + 2, OBJECTS.boxes_M4, OBJECTS.image_M))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "weights", [{"coord_ce_weight": 1.0}, {"coord_ce_weight": 0.5, "gate_weight": 1.0}, {"gate_weight": 1.0}]
)
def test_coordinates_alone_are_smoothed_too(weights, fused):
    config = ObjectiveConfig(text_weight=0.0, label_smoothing=0.2, **weights)
    logits, objective = logits_of(TARGETS), CoordObjective(config, VOCAB)
    hidden = torch.eye(len(TARGETS), dtype=F64)
    output = objective.fused(hidden, logits.T, TARGETS) if fused else objective(logits, TARGETS)
    expected = naive_terms(logits, TARGETS, ObjectSlots.none(), config)
    assert {name: term.sum.item() for name, term in output.terms.items()} == {
        name: pytest.approx(float(expected[name]), rel=1e-9) for name in config.weights
    }


@pytest.mark.parametrize("fused", [False, True])
def test_text_alone_is_smoothed_without_coordinate_tokens(fused):
    objective = CoordObjective(ObjectiveConfig(label_smoothing=0.2), None)
    logits = logits_of(TARGETS)
    hidden = torch.eye(len(TARGETS), dtype=F64)
    output = objective.fused(hidden, logits.T, TARGETS) if fused else objective(logits, TARGETS)
    expected = torch.nn.functional.cross_entropy(logits, TARGETS, label_smoothing=0.2)
    assert output.total().item() == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize("zero", [0, 0.0, torch.tensor(0)])
def test_count_of_zero_divides_by_one_and_a_fraction_of_one_does_too(zero):
    output = CoordObjective(EVERYTHING, VOCAB)(logits_of(TARGETS), TARGETS, OBJECTS)
    sums = output.weighted(dict.fromkeys(("tokens", "coord_tokens", "objects"), 1))
    for key in ("tokens", "coord_tokens", "objects"):
        found = output.weighted({"tokens": 1, "coord_tokens": 1, "objects": 1, key: zero})
        assert found == sums
    with pytest.raises(ValueError, match="lacks"):
        output.total({})
