"""What can be seen of a run that was trained in this process: figures of its optimizer, log, files and batches."""

import json
import math

QUERY = "model.language_model.layers.0.self_attn.q_proj"


def groups(seen, key):
    return [group[key] for group in seen.trainer.optimizer.param_groups]


def trained(seen):
    return {name for name, parameter in seen.trainer.model.named_parameters() if parameter.requires_grad}


def logged(seen, key):
    return [line["step"] for line in seen.lines if key in line]


def saved(seen):
    return sorted(
        int(name.rsplit("-", 1)[1])
        for name in seen.files
        if name.startswith("checkpoints/checkpoint-") and "/" not in name[12:]
    )


def loader(seen):
    return seen.trainer.get_train_dataloader()


def adapter(seen):
    return json.loads((seen.checkpoint / "adapter_config.json").read_text())


def in_order(seen):
    names = [name for _, names, *_ in seen.batches for name in names][:8]
    return names == sorted(names)


def has(seen, *parts):
    """For each part of a name, whether any trained parameter has it."""
    return [any(part in name for name in trained(seen)) for part in parts]


def moved(seen):
    now = dict(seen.trainer.model.named_parameters())
    return math.sqrt(sum(float((now[name] - value).pow(2).sum()) for name, value in seen.start.items()))


def checkpointing(seen):
    model = seen.trainer.model.model
    return model.language_model.layers[0].gradient_checkpointing, model.visual.blocks[0].gradient_checkpointing


def reentrant(seen):
    layer = seen.trainer.model.model.language_model.layers[0]
    return layer._gradient_checkpointing_func.keywords["use_reentrant"] if layer.gradient_checkpointing else None


def lora(key):
    return lambda seen: adapter(seen).get(key)


def best(seen):
    return seen.trainer.state.best_metric


def orthogonal(seen):
    """The kinds of layers whose matrices Muon has a momentum for."""
    states = seen.trainer.optimizer.state
    names = {n for n, p in seen.trainer.model.named_parameters() if "momentum_buffer" in states[p]}
    return sorted(
        k
        for k in ("attn", "merger", "mlp", "patch_embed", "self_attn", "embed", "norm", "head")
        if any(f".{k}" in n for n in names)
    )


def initial(seen):
    return sorted(set(groups(seen, "initial_lr")))


def layer(seen):
    """The tuned query projection of the first layer, where there is one."""
    return seen.trainer.model.get_submodule(f"base_model.model.{QUERY}")
