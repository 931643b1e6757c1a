"""One optimiser step of SGD through CoordTrainer, on one rank or as one of two."""

import os

import tiny_models
import torch
from transformers import TrainingArguments

from coord_losses.hf import CoordTrainer, patch


class Stream(torch.utils.data.IterableDataset):
    """The samples one after another."""

    def __iter__(self):
        return iter(tiny_models.samples())


ONE_STEP = {
    "max_steps": 1,
    "optim": "sgd",
    "learning_rate": 1.0,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
}


def train(out, name, batch, accumulation, trainer=CoordTrainer, config=tiny_models.CONFIG, *, init=False, data=None):
    trained = made(out, name, batch, accumulation, trainer, config, init=init, data=data)
    before = [p.detach().clone() for p in (patched(name, config) if init else trained.model).parameters()]
    trained.train()
    gradients = [b - p.detach() for b, p in zip(before, trained.model.parameters(), strict=True)]
    return gradients, trained.state.log_history[0]


def made(
    out, name, batch, accumulation, trainer=CoordTrainer, config=tiny_models.CONFIG, *, init=False, data=None, **options
):
    arguments = TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        **ONE_STEP | options,
    )
    return trainer(
        **({"model_init": lambda: patched(name, config)} if init else {"model": patched(name, config)}),
        args=arguments,
        train_dataset=tiny_models.samples() if data is None else data,
        data_collator=tiny_models.collator(),
    )


def patched(name, config=tiny_models.CONFIG):
    return patch(tiny_models.model(name), tiny_models.objective(config))


def be_a_rank(rank, out, name, batch, accumulation, data=None):
    torch.set_num_threads(1)  # in a fork, which has none of the other threads
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="0")
    torch.distributed.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    gradients, logs = train(out, name, batch, accumulation, data=data)
    if rank == 0:
        torch.save({"gradients": gradients, "logs": logs}, f"{out}/found.pt")
    torch.distributed.destroy_process_group()  # else a rank that ends before the other may abort in its threads
