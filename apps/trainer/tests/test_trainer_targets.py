"""Other targets through ms-swift: plain numbers, JSON, an order per epoch; and what groups of one seed share."""

import json
from pathlib import Path

import pytest
import torch

from coord_trainer.config_files import check_run_config, load_run_config
from coord_trainer.errors import InputError
from coord_trainer.picture_set import draw_sets
from coord_trainer.tiny_model import base_checkpoint

pytest.importorskip("swift")

ROOT = Path(__file__).parents[3]
TINY = {"hidden": 32, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2}
SMALL = {
    "data": {"markers": "obj", "shapes": {"train": 12, "heldout": 4}},
    "run": {"threads": 1, "gradient_norms": True},
    "training": {
        "max_steps": 3,
        "logging_steps": 1,
        "save_steps": 3,
        "eval_steps": 3,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
    },
    "model": {"tiny": TINY},
}
SOFT = {"coord_soft_ce_w1": {"enabled": True}}
PLAIN = {"coord_tokens": {"enabled": False}}


def config(custom, **sections):
    values = SMALL | {"custom": custom}
    return check_run_config(values | {k: values.get(k, {}) | v for k, v in sections.items()}, "test")


def run(settings, folder):
    """Train, answer in every reading and score; returns the manifest and the log."""
    from coord_trainer.training import train_and_score

    result = train_and_score(settings, folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return result, json.loads((folder / "manifest.json").read_text()), lines


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Every group of phase 1, three steps of the same seed each."""
    finished = {}
    for file in sorted((ROOT / "configs" / "phase1").glob("*.yaml")):
        settings = check_run_config(
            SMALL | load_run_config(file, []).model_dump(mode="json", include={"custom"}), file.name
        )
        finished[file.stem] = run(settings, tmp_path_factory.mktemp(file.stem) / "run")
    return finished


def test_groups_of_one_seed_begin_with_the_same_batches_and_weights(groups):
    digests = [manifest["first_batches"] for _, manifest, _ in groups.values()]
    assert len(digests) == 5
    assert all(digest == digests[0] for digest in digests)
    assert digests[0]["batches"] == 3
    text = {round(lines[0]["train_text_loss"], 5) for _, _, lines in groups.values()}
    assert len(text) == 1  # the loss of the words at the first step: same weights, same samples
    ce = {round(lines[0]["coord_diag/coord_token_ce"], 4) for _, _, lines in groups.values()}
    assert len(ce) == 1
    other = check_run_config(SMALL | {"custom": SOFT, "run": {"seed": 1, "threads": 1}}, "test")
    assert other.run.seed == 1


def test_every_term_with_a_weight_logs_the_norm_of_its_own_gradient(groups):
    for (_, _, lines), terms in zip(
        groups.values(),
        (
            {"text_ce", "coord_ce"},
            {"text_ce", "box"},
            {"text_ce", "coord_ce", "box"},
            {"text_ce", "coord_ce", "soft_ce", "w1", "gate"},
            {"text_ce", "soft_ce", "w1", "gate"},
        ),
        strict=True,
    ):
        first = lines[0]
        assert {name.removeprefix("grad_norm/") for name in first if name.startswith("grad_norm/")} == terms
        norms = [first[f"grad_norm/{term}"] for term in terms]
        assert all(norm > 0 for norm in norms)
        # The whole gradient is their sum, so its norm cannot exceed the sum of theirs.
        assert first["grad_norm"] <= sum(norms) * (1 + 1e-4)


@pytest.fixture(scope="module")
def without_coord_tokens(tmp_path_factory):
    """A checkpoint whose tokenizer has never heard of coordinates."""
    from coord_trainer import tiny_processor

    folder = tmp_path_factory.mktemp("plain")
    settings = config(PLAIN, model={"tiny": TINY | {"smooth_rows": False}})
    train, _ = draw_sets(settings, folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_processor, "coord_tokens", lambda grid: [])
        return base_checkpoint(settings, folder, train)


@pytest.mark.parametrize("style", ["markers", "json"])
@pytest.mark.parametrize("tokenizer", ["with", "without"])
def test_numbers_as_text_are_trained_answered_and_scored(style, tokenizer, without_coord_tokens, tmp_path):
    model = {"path": without_coord_tokens} if tokenizer == "without" else {}
    result, manifest, lines = run(config(PLAIN, data={"style": style}, model=model), tmp_path / "run")
    assert (manifest["fingerprint"] is None) == (tokenizer == "without")
    assert lines[0]["train_total_loss"] == pytest.approx(lines[0]["train_text_loss"])
    assert lines[0]["coord_diag/coord_tokens"] == 0
    assert result.evaluation.format["answers"] == 4
    answers = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert all("coord_logprobs" not in answer for answer in answers) or tokenizer == "with"


def test_coordinate_tokens_inside_json_are_trained_with_their_boxes(tmp_path):
    custom = {"coord_objective": {"use_coordexp_loss": True, "use_geom_loss": True, "use_coord_ce": True}}
    _, _, lines = run(config(custom, data={"style": "json"}), tmp_path / "run")
    assert lines[0]["train_coord_loss"] > 0
    assert "coord_diag/fallback_boxes" not in lines[0]


def test_a_random_order_is_another_one_each_epoch_and_the_same_when_repeated(tmp_path):
    from coord_trainer.pipeline import open_run, sample_set

    settings = config(SOFT, data={"order": "random", "shapes": {"train": 30, "heldout": 2}})
    train, _ = draw_sets(settings, tmp_path / "data")
    opened = open_run(settings, tmp_path, base_checkpoint(settings, tmp_path, train), evaluates=False)
    samples = sample_set(settings, opened, train)

    def targets(epoch):
        samples.set_epoch(epoch)
        return [samples[index]["labels"] for index in range(len(samples))], [
            samples[index]["coord_boxes"] for index in range(len(samples))
        ]

    (first, boxes), (second, others), (again, _) = targets(0), targets(1), targets(0)
    assert first == again != second
    assert [sorted(b) for b in boxes] == [sorted(b) for b in others]  # the same objects
    with pytest.raises(InputError, match=r"data\.preload is true but data\.order is random"):
        config(SOFT, data={"order": "random", "preload": True})


def test_a_terms_norm_is_that_of_its_own_gradient():
    from coord_codec import CoordVocab
    from coord_losses import CoordObjective, ObjectiveConfig
    from coord_trainer.gradient_norms import term_gradient_norms

    torch.manual_seed(0)
    weight = torch.randn(1100, 8, dtype=torch.float64, requires_grad=True)
    hidden, targets = torch.randn(6, 8, dtype=torch.float64), torch.tensor([3, 60, 70, 80, 90, 7])
    objective = CoordObjective(ObjectiveConfig(coord_ce_weight=0.3, w1_weight=2.0), CoordVocab(50))
    found = term_gradient_norms(objective.fused(hidden, weight, targets), [weight])
    for name, factor in (("text_ce", 1 / 6), ("coord_ce", 0.3 / 6), ("w1", 2.0 / 4)):
        term = objective(hidden @ weight.T, targets).terms[name]
        expected = torch.autograd.grad(factor * term.sum, weight)[0].norm().item()
        assert found[name] == pytest.approx(expected, rel=1e-5)
