"""Gradients through Hugging Face's Trainer do not depend on how a batch is split."""

import pytest
import tiny_models
import torch
from torch.multiprocessing import start_processes

import coord_losses.hf
from coord_losses import ObjectiveConfig, supervised_rows
from coord_losses.hf import CoordTrainerMixin, patch
from coord_losses.hf.patch import patch_state

transformers = pytest.importorskip("transformers", reason="Hugging Face's Trainer")
pytest.importorskip("accelerate", reason="Hugging Face's Trainer needs it")
train_once = pytest.importorskip("train_once")
train, be_a_rank = train_once.train, train_once.be_a_rank


def reference(name):
    """Gradients of one large batch, from the logits by the readable form."""
    model, batch = tiny_models.model(name), tiny_models.collator()(tiny_models.samples())
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    output = tiny_models.objective()(*supervised_rows(logits, batch["labels"]), batch["objects"])
    output.total().backward()
    return [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()], output


def assert_same(found, expected):
    largest = max(e.abs().max() for e in expected)
    for g, e in zip(found, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-4, atol=2e-6 * largest.item() + 2e-7)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", ["Qwen2", "Llama", "Gemma2", "Qwen3VL", "PaliGemma"])
def test_trainer_gradients_do_not_depend_on_accumulation(name, tmp_path):
    expected, output = reference(name)
    for batch, accumulation in ((8, 1), (3, 3)):
        gradients, logs = train(str(tmp_path), name, batch, accumulation)
        assert_same(gradients, expected)
        assert logs["loss"] == pytest.approx(output.total().item(), rel=1e-4)
        for term, value in output.weighted().items():
            assert logs[term] * output.weights[term] == pytest.approx(value.item(), rel=1e-4)
        for key, seen in output.diagnostics().items():
            assert logs[f"diagnostics/{key}"] == pytest.approx((seen.sum / seen.count).item(), rel=1e-4)


@pytest.mark.slow
def test_plain_trainer_divides_by_the_tokens_of_the_step_and_refuses_other_counts(tmp_path):
    split, whole = (
        train(str(tmp_path), "Qwen2", *sizes, transformers.Trainer, ObjectiveConfig.group_a())
        for sizes in ((2, 4), (8, 1))
    )
    assert_same(split[0], whole[0])
    assert split[1]["loss"] == pytest.approx(whole[1]["loss"], rel=1e-4)
    train(str(tmp_path), "Qwen2", 8, 1, transformers.Trainer)  # a step of one batch has that batch's counts
    with pytest.raises(ValueError, match=r"num_items_in_batch: .*CoordTrainer.*global_denominators"):
        train(str(tmp_path), "Qwen2", 2, 4, transformers.Trainer)


@pytest.mark.slow
def test_trainer_that_makes_its_model_logs_the_terms(tmp_path):
    expected, output = reference("Qwen2")
    gradients, logs = train(str(tmp_path), "Qwen2", 8, 1, init=True)
    assert_same(gradients, expected)
    assert logs["box"] == pytest.approx(output.weighted()["box"].item(), rel=1e-4)


@pytest.mark.slow
def test_diagnostics_are_those_of_the_steps_that_are_logged(tmp_path):
    logs = {}
    for every in (1, 2):
        trainer = train_once.made(str(tmp_path), "Qwen2", 3, 1, logging_steps=every, max_steps=4, learning_rate=0.0)
        trainer.train()
        logs[every] = trainer.state.log_history[:-1]
    for each, other in zip(logs[1][1::2], logs[2], strict=True):
        diagnosed = [key for key in each if key.startswith("diagnostics/")]
        assert diagnosed
        assert {key: each[key] for key in diagnosed} == pytest.approx({key: other[key] for key in diagnosed}, rel=1e-5)


@pytest.mark.slow
def test_first_step_is_diagnosed_where_it_is_logged(tmp_path):
    options = {"logging_steps": 3, "logging_first_step": True, "max_steps": 4}
    trainer = train_once.made(str(tmp_path), "Qwen2", 3, 1, **options)
    trainer.train()
    logged = [any(key.startswith("diagnostics/") for key in row) for row in trainer.state.log_history[:-1]]
    assert [row["step"] for row in trainer.state.log_history[:-1]] == [1, 3] and logged == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("data", [None, train_once.Stream()], ids=["list", "stream"])
def test_trainer_gradients_do_not_depend_on_ranks(data, tmp_path, monkeypatch):
    expected, output = reference("Qwen2")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "1")
    start_processes(be_a_rank, (str(tmp_path), "Qwen2", 2, 2, data), nprocs=2, start_method="fork")
    found = torch.load(tmp_path / "found.pt")
    assert_same(found["gradients"], expected)
    assert found["logs"]["loss"] == pytest.approx(output.total().item(), rel=1e-4)
    assert found["logs"]["box"] == pytest.approx(output.weighted()["box"].item(), rel=1e-4)


@pytest.mark.slow
def test_sft_trainer_of_trl_takes_the_mixin(tmp_path):
    trl = pytest.importorskip("trl", reason="TRL's SFTTrainer")
    datasets = pytest.importorskip("datasets", reason="TRL's data sets")
    from tokenizers import Tokenizer, models

    class SFT(CoordTrainerMixin, trl.SFTTrainer):
        pass

    words = {f"w{i}": i for i in range(60)}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w3")), pad_token="w0", eos_token="w4"
    )

    def sft(model, args, train_dataset, data_collator):
        config = trl.SFTConfig(**{k: v for k, v in args.to_dict().items() if k in GIVEN}, bf16=False)
        return SFT(
            model=model,
            args=config,
            train_dataset=datasets.Dataset.from_list(train_dataset),
            data_collator=data_collator,
            processing_class=tokenizer,
        )

    expected, output = reference("Qwen2")
    gradients, logs = train(str(tmp_path), "Qwen2", 2, 4, trainer=sft)
    assert_same(gradients, expected)
    assert logs["gate"] == pytest.approx(output.weighted()["gate"].item(), rel=1e-4)


GIVEN = {
    "output_dir",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_steps",
    "optim",
    "learning_rate",
    "lr_scheduler_type",
    "max_grad_norm",
    "logging_steps",
    "save_strategy",
    "report_to",
    "use_cpu",
    "disable_tqdm",
}


def test_trainer_refuses_a_model_that_is_not_patched(tmp_path):
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match=r"patch\(model, objective\)"):
        coord_losses.hf.CoordTrainer(model=tiny_models.model("Qwen2"), args=arguments)


REFUSED = {"label_smoothing_factor": 0.1, "loss_type": "dft", "use_liger_kernel": True}
REFUSED |= {"dispatch_batches": True, "compute_loss_func": max}


@pytest.mark.parametrize("name", REFUSED)
def test_trainer_refuses_arguments_that_would_have_no_effect(name, tmp_path, monkeypatch):
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    if name == "dispatch_batches":
        arguments.accelerator_config.dispatch_batches = True
        from accelerate import Accelerator

        monkeypatch.setattr(Accelerator, "num_processes", 2)
    elif name != "compute_loss_func":
        setattr(arguments, name, REFUSED[name])
    with pytest.raises(ValueError, match=name):
        coord_losses.hf.CoordTrainer(
            model=patch(tiny_models.model("Qwen2"), tiny_models.objective()),
            args=arguments,
            train_dataset=tiny_models.samples(),
            compute_loss_func=REFUSED[name] if name == "compute_loss_func" else None,
        )


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, ""),
        *(({"loss_type": loss}, "") for loss in (None, "nll", "chunked_nll")),
        ({"loss_type": "dft"}, "loss_type"),
        *(
            ({"use_liger_kernel": True, "liger_kernel_config": given}, "use_liger")
            for given in (None, {}, {"rope": True})
        ),
        ({"use_liger_kernel": True, "liger_kernel_config": {"fused_linear_cross_entropy": False}}, ""),
        ({"use_liger_kernel": False, "liger_kernel_config": {"fused_linear_cross_entropy": True}}, ""),
        ({"n_gpu": 2}, "several GPUs"),
        ({"n_gpu": 0}, ""),
    ],
)
def test_arguments_that_have_an_effect_are_left_alone(given, refused):
    from types import SimpleNamespace

    usual = {"n_gpu": 1, "label_smoothing_factor": 0.0, "use_liger_kernel": False, "liger_kernel_config": None}
    trainer = SimpleNamespace(
        args=SimpleNamespace(**(usual | given)),
        compute_loss_func=None,
        accelerator=SimpleNamespace(num_processes=1, dispatch_batches=True),
    )
    told = [message for find, message in coord_losses.hf.trainer._REFUSED if find(trainer)]
    assert len(told) == bool(refused) and all(message.startswith(refused) for message in told)


def test_evaluations_measure_nothing_and_leave_the_log_of_training(tmp_path):
    trainer = train_once.made(str(tmp_path), "Qwen2", 3, 1)
    batch, state = tiny_models.collator()(tiny_models.samples(4)), patch_state(trainer.model)
    trainer.state.logging_steps = 0  # as every step
    trainer.model.train()
    loss, outputs = trainer.compute_loss(trainer.model, dict(batch), return_outputs=True)
    assert state.want_diagnostics and outputs["loss"] is loss
    trainer.model.eval()
    assert trainer.compute_loss(trainer.model, dict(batch)) == loss and not state.want_diagnostics
    trainer.log({"eval_loss": 1.0})
    trainer.log({"loss": 1.0})
    trainer.log({"loss": 1.0})
    evaluated, trained, empty = trainer.state.log_history
    assert "box" not in evaluated and "diagnostics/gate" in trained and "box" not in empty
    trainer.state.logging_steps, trainer.state.global_step = 3, 4
    for first, step, wanted in (
        (False, 0, False),
        (True, 0, True),
        (True, 1, False),
        (False, 2, True),
        (False, 3, False),
    ):
        trainer.args.logging_first_step, trainer.state.global_step = first, step
        trainer.compute_loss(trainer.model.train(), dict(batch))
        assert state.want_diagnostics is wanted, (first, step)


def test_loss_of_a_rank_is_scaled_only_where_all_ranks_were_counted(tmp_path, monkeypatch):
    trainer = train_once.made(str(tmp_path), "Qwen2", 3, 1)
    batch, counts = tiny_models.collator()(tiny_models.samples(4)), {"tokens": 50, "coord_tokens": 40, "objects": 9}
    own, counted = (trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=n) for n in (None, counts))
    monkeypatch.setattr(type(trainer.accelerator), "num_processes", 3)
    assert trainer.compute_loss(trainer.model, dict(batch)) == own
    torch.testing.assert_close(trainer.compute_loss(trainer.model, dict(batch), num_items_in_batch=counts), 3 * counted)
    with pytest.raises(ValueError, match="stands in place of patch's"):
        trainer.compute_loss(Other(), {})


class Other(torch.nn.Module):
    """A model whose forward pass knows of no objective."""

    def forward(self, denominators=None):
        return {"loss": torch.zeros(())}


@pytest.mark.parametrize("own", [[], ["boxes", "kinds"]])
def test_boxes_are_among_the_columns_that_are_kept_once(own, tmp_path):
    trainer = train_once.made(str(tmp_path), "Qwen2", 3, 1)
    trainer._signature_columns = [*own] or None
    for _ in range(2):
        trainer._set_signature_columns_if_needed()
    columns = trainer._signature_columns
    assert columns.count("boxes") == 1 and set(own) <= set(columns)
    assert own or {"input_ids", "labels", "objects"} <= set(columns)
