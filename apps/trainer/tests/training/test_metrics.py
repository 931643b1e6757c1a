"""The figures of a log line and gradient norms, against the plain computation."""

from types import SimpleNamespace

import pytest
import torch

from coord_codec import CoordVocab
from coord_codec.registry import Registry
from coord_losses import CoordObjective, LossTerm, ObjectiveConfig, ObjectiveOutput, ObjectSlots, register_term
from coord_losses.hf.metrics import StepMetrics
from coord_losses.terms import registry
from coord_trainer.training.callbacks import TrainingProgress
from coord_trainer.training.metrics import log_line, term_gradient_norms

V, FIRST = 1100, 50
VOCAB = CoordVocab(FIRST)
EVERY_TERM = ObjectiveConfig(coord_ce_weight=0.5, soft_ce_weight=0.25, w1_weight=2, box_weight=3)


def batch(seed, objects):
    """Logits, targets and slots of a few words and `objects` boxes."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(objects, 2, 2, generator=generator).sort(dim=1).values
    boxes = corners.flatten(1)
    sides = (FIRST + boxes * 999).long().flatten()
    targets = torch.cat([torch.tensor([3, 7, 4]), sides])
    logits = torch.randn(len(targets), V, generator=generator, dtype=torch.float64)
    rows = 3 + torch.arange(4 * objects).reshape(objects, 4)
    return logits, targets, ObjectSlots(rows, boxes, torch.zeros(objects, dtype=torch.long))


def logged(config, batches, prefix=""):
    step_metrics = StepMetrics(config.weights)
    for logits, targets, slots in batches:
        output = CoordObjective(config, VOCAB)(logits, targets, slots)
        step_metrics.add(output, output.diagnostics(), slots.fallbacks)
    line = log_line(step_metrics, step_metrics.flush(torch.clone), prefix)
    assert log_line(step_metrics, step_metrics.flush(torch.clone), prefix) == {}
    return line


def test_logged_means_are_those_of_the_whole_however_it_was_cut():
    first, second = batch(4, objects=2), batch(5, objects=3)
    line = logged(EVERY_TERM, [first, second])
    rows = torch.cat([first[2].rows_M4, second[2].rows_M4 + len(first[1])])
    slots = ObjectSlots(rows, torch.cat([first[2].boxes_M4, second[2].boxes_M4]), torch.zeros(5).long())
    whole = CoordObjective(EVERY_TERM, VOCAB)(*(torch.cat([first[i], second[i]]) for i in (0, 1)), slots)
    assert line["train_total_loss"] == pytest.approx(whole.total().item(), rel=1e-12)
    parts = ("train_text_loss", "train_coord_loss", "train_coord_ce_loss", "coord_diag/loss")
    assert line["train_total_loss"] == pytest.approx(sum(line[part] for part in parts), rel=1e-12)
    assert line["coord_diag/coord_tokens"] == whole.counts["coord_tokens"]
    assert line["coord_diag/gate"] > 0  # computed, though not trained


def test_evaluation_names_have_the_prefix_and_every_name_is_there():
    names = set(logged(ObjectiveConfig.soft(), [batch(6, objects=1)], "eval_"))
    expected = {"eval_total_loss", "eval_text_loss", "eval_coord_loss", "eval_coord_ce_loss"}
    diagnostics = ("loss", "soft_ce", "w1", "gate", "coord_vocab_mass", "coord_tokens", "enabled")
    assert expected | {f"eval_coord_diag/{name}" for name in diagnostics} <= names


def test_new_loss_term_is_part_of_the_logged_total(monkeypatch):
    """A term that this file has never heard of, as coord_losses would hand it over."""
    monkeypatch.setattr(registry, "_TERMS", Registry("term", registry._TERMS.items()))
    register_term("angle", lambda inputs: inputs.boxes_M4[:, 0], needs="box", log_key="turn")
    weights = {"text_ce": 1.0, "angle": 0.5}
    counts = {"tokens": torch.tensor(8), "coord_tokens": torch.tensor(4), "objects": torch.tensor(2)}
    terms = {
        "text_ce": LossTerm(torch.tensor(16.0), torch.tensor(8)),
        "angle": LossTerm(torch.tensor(6.0), torch.tensor(2)),
    }
    step_metrics = StepMetrics(weights)
    for _ in range(2):
        step_metrics.add(ObjectiveOutput(terms, weights, counts, dict), {}, 0)
    line = log_line(step_metrics, step_metrics.flush(torch.clone), "")
    assert line["train_total_loss"] == 2.0 + 0.5 * 3.0
    assert (line["train_text_loss"], line["coord_diag/loss"], line["coord_diag/turn"]) == (2.0, 1.5, 3.0)


def test_a_loss_of_no_term_is_a_float_as_all_others():
    line = logged(ObjectiveConfig.group_a(), [batch(1, objects=1)])
    assert line["coord_diag/loss"] == 0
    assert {type(value) for value in line.values()} == {float}


def test_gradient_norm_of_a_term_is_that_of_its_own_gradient():
    torch.manual_seed(0)
    weight = torch.randn(V, 8, dtype=torch.float64, requires_grad=True)
    hidden, targets = torch.randn(6, 8, dtype=torch.float64), torch.tensor([3, 60, 70, 80, 90, 7])
    objective = CoordObjective(ObjectiveConfig(coord_ce_weight=0.3, w1_weight=2.0), VOCAB)
    found = term_gradient_norms(objective.fused(hidden, weight, targets), [weight])
    for name, factor in (("text_ce", 1 / 6), ("coord_ce", 0.3 / 6), ("w1", 2.0 / 4)):
        term = objective(hidden @ weight.T, targets).terms[name]
        expected = torch.autograd.grad(factor * term.sum, weight)[0].norm().item()
        assert found[name] == pytest.approx(expected, rel=1e-5)


def test_gradient_norm_of_half_precision_does_not_overflow_and_frozen_parameters_have_no_part():
    weight = torch.ones(1, dtype=torch.float16, requires_grad=True)
    other = torch.ones(1, requires_grad=True)
    terms = {
        "text_ce": LossTerm((weight * 300).sum(), torch.tensor(1)),
        "coord_ce": LossTerm(other.sum(), torch.tensor(1)),
    }
    counts = {name: torch.tensor(1) for name in ("tokens", "coord_tokens", "objects")}
    output = ObjectiveOutput(terms, {"text_ce": 2.0, "coord_ce": 1.0}, counts, dict)
    found = term_gradient_norms(output, [weight, torch.ones(3)])
    assert found == {"text_ce": 600.0, "coord_ce": 0.0}
    assert term_gradient_norms(output, [weight], counts | {"tokens": 4})["text_ce"] == 150


def test_evaluation_losses_are_printed_beside_the_last_training_loss(capsys):
    progress, start = TrainingProgress(), SimpleNamespace(is_world_process_zero=True, max_steps=3, global_step=0)
    progress.on_train_begin(None, start, None)
    for step, logs in enumerate(({"train_total_loss": 2.5}, {"eval_total_loss": 3.1}), start=1):
        progress.on_log(None, SimpleNamespace(global_step=step), None, logs=logs)
    assert "step 2: evaluation loss 3.100, training loss 2.500" in capsys.readouterr().out
