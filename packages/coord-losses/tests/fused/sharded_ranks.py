"""The objective with a vocabulary that is spread over two ranks; `OUT` gets what each rank found.

The ranks are forks of this process, so that torch is imported once. Every rank has the whole problem as well, and
computes what it expects from it.
"""

import sys

import torch
import torch.distributed as dist
from fused_problem import CONFIGS, EVERYTHING, F64, VOCAB, H, V, gradients, problem, readable
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.multiprocessing import start_processes

from coord_losses import CoordObjective

ALL_TERMS = EVERYTHING.model_copy(update={"z_loss_weight": 0.2, "label_smoothing": 0.1, "extra_weights": {"dfl": 0.5}})
AFTER = {"softcap": 2.0, "logit_scale": 0.4, "bias": True}
CASES = {f"{name}, split at 45": {"config": config, "split": 45} for name, config in CONFIGS.items()}
CASES |= {f"{name}, split at 80": {"config": config, "split": 80, **AFTER} for name, config in CONFIGS.items()}
CASES |= {
    "all terms": {"config": ALL_TERMS, "split": 45, **AFTER},
    "coordinates on one rank": {"config": ALL_TERMS, "split": 20},
    "offsets": {"config": ALL_TERMS, "split": 45, "offsets": list(VOCAB.ids)},
    "offsets on one rank": {"config": ALL_TERMS, "split": 75, "offsets": [*reversed(VOCAB.ids), 3, 0]},
    "offsets, coordinate terms alone": {
        "config": ALL_TERMS.model_copy(update={"text_weight": 0.0, "coord_ce_weight": 0.0, "z_loss_weight": 0.0}),
        "split": 75,
        "offsets": list(VOCAB.ids),
    },
    "no coordinates": {"config": ALL_TERMS, "split": 45, "objects": 0},
}


def case(group, config, split, text=9, objects=3, offsets=None, bias=False, trained=True, **after):
    """Return (name, found, expected) of one case on this rank: values and gradients."""
    hidden, weight, targets, slots = problem(text, objects, VOCAB, V, 4)
    own = slice(0, split) if dist.get_rank() == 0 else slice(split, V)
    whole_bias = torch.linspace(-1, 1, V, dtype=F64).requires_grad_() if bias else None
    table = (
        None if offsets is None else torch.randn(len(offsets), H, generator=torch.Generator().manual_seed(1), dtype=F64)
    )
    hidden.requires_grad_(), weight.requires_grad_(trained)
    if table is not None:
        table.requires_grad_()
    objective = CoordObjective(config, VOCAB)
    expected = readable(objective, hidden, weight, targets, slots, table, offsets, bias_V=whole_bias, **after)
    local = weight.detach()[own].requires_grad_(trained)
    local_bias = None if whole_bias is None else whole_bias.detach()[own].requires_grad_()
    states = hidden.detach().requires_grad_()
    added = None if table is None else table.detach().requires_grad_()
    found = objective.fused(
        states,
        local,
        targets,
        slots,
        added,
        offset_ids_K=offsets,
        bias_V=local_bias,
        vocab_group=group,
        denominators=expected.counts,
        chunk_rows=7,
        chunk_vocab=25,
        **after,
    )
    factors = [0.3 + 0.1 * i for i in range(12)]
    wanted = gradients(expected, (hidden, weight, table, whole_bias), factors)
    given = gradients(found, (states, local, added, local_bias), factors)
    sharded = [trained and i == 1 for i in range(len(wanted))]
    if whole_bias is not None:
        sharded[-1] = True
    wanted = [x[own] if part else x for x, part in zip(wanted, sharded, strict=True)]
    pairs = [(t.sum, e.sum) for t, e in zip(found.terms.values(), expected.terms.values(), strict=True)]
    diagnostics = found.diagnostics()
    pairs += [(diagnostics[name].sum, term.sum) for name, term in expected.diagnostics().items()]
    return [*pairs, *zip(given, wanted, strict=True)]


def readable_case(group, split=45):
    """The readable form, from the logits of this rank's part of the vocabulary."""
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 4)
    own = slice(0, split) if dist.get_rank() == 0 else slice(split, V)
    objective = CoordObjective(ALL_TERMS, VOCAB)
    logits = (hidden @ weight.T).requires_grad_()
    expected = objective(logits, targets, slots).total()
    local = logits.detach()[:, own].requires_grad_()
    found = objective(local, targets, slots, vocab_group=group).total()
    mesh = init_device_mesh("cpu", (2,))
    spread = distribute_tensor(logits.detach(), mesh, [Shard(1)]).requires_grad_()
    of_spread = objective(spread, targets, slots).total()
    (grad,) = torch.autograd.grad(expected, logits)
    (grad_local,) = torch.autograd.grad(found, local)
    (grad_spread,) = torch.autograd.grad(of_spread, spread)
    return [(found, expected), (of_spread, expected), (grad_local, grad[:, own]), (grad_spread.full_tensor(), grad)]


def data_parallel_case(trained):
    """A DTensor as FSDP2 leaves one: ranks have batches of their own, and multiply their loss by two."""
    mesh = init_device_mesh("cpu", (2,))
    objective, rank = CoordObjective(ALL_TERMS, VOCAB), dist.get_rank()
    batches = [problem(9 - 2 * i, 3 - i, VOCAB, V, 4 + i) for i in range(2)]
    weight = batches[0][1].requires_grad_(trained)
    bias = torch.linspace(-1, 1, V, dtype=F64)
    counts = {"tokens": 30, "coord_tokens": 21, "objects": 5}
    states = [batch[0].requires_grad_() for batch in batches]
    parts = [
        readable(objective, hidden, weight, batch[2], batch[3], bias_V=bias).total(counts)
        for hidden, batch in zip(states, batches, strict=True)
    ]
    spread, own = distribute_tensor(weight.detach(), mesh, [Shard(0)]).requires_grad_(trained), states[rank].detach()
    own.requires_grad_()
    found = objective.fused(
        own, spread, *batches[rank][2:], bias_V=distribute_tensor(bias, mesh, [Shard(0)]), denominators=counts
    ).total(counts)
    inputs = (own, spread) if trained else (own,)
    given = torch.autograd.grad(2 * found, inputs)
    wanted = torch.autograd.grad(sum(parts), (states[rank], weight) if trained else (states[rank],))
    pairs = [(found, parts[rank]), (given[0] / 2, wanted[0])]
    return [*pairs, (given[1].full_tensor(), wanted[1])] if trained else pairs


def refusal(weight, group):
    """Return what is said to a weight that cannot be used."""
    hidden, _, targets, slots = problem(9, 3, VOCAB, V, 4)
    try:
        CoordObjective(ALL_TERMS, VOCAB).fused(hidden, weight, targets, slots, vocab_group=group)
    except ValueError as error:
        return str(error)
    return "nothing"


def main(rank, out):
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    group, found = dist.group.WORLD, {}
    for name, settings in CASES.items():
        for trained in (False, True):
            found[f"{name}, {'trained' if trained else 'frozen'}"] = case(group, trained=trained, **settings)
    found["readable"] = readable_case(group)
    for trained in (False, True):
        found[f"FSDP, {'trained' if trained else 'frozen'}"] = data_parallel_case(trained)
    detached = {name: [(a.detach(), e.detach()) for a, e in pairs] for name, pairs in found.items()}
    weight, mesh = problem(9, 3, VOCAB, V, 4)[1], init_device_mesh("cpu", (2,))
    refused = [
        refusal(weight[: V * (1 - dist.get_rank())], group),
        refusal(distribute_tensor(weight, mesh, [Shard(1)]), group),
    ]
    torch.save({"found": detached, "refused": refused}, f"{out}/rank-{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    start_processes(main, (sys.argv[1],), nprocs=2, start_method="fork")
