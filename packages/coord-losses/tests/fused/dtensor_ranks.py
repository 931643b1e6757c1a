"""The objective with weights and logits that are a `DTensor` over two ranks.

Every rank has the whole problem as well, and computes what it expects from it.
"""

import torch
import torch.distributed as dist
from fused_problem import EVERYTHING, F64, VOCAB, V, problem, readable
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

from coord_losses import CoordObjective

ALL_TERMS = EVERYTHING.model_copy(update={"label_smoothing": 0.1})


def readable_case():
    """The readable form, from logits whose columns are spread over the ranks."""
    hidden, weight, targets, slots = problem(9, 3, VOCAB, V, 4)
    objective = CoordObjective(ALL_TERMS, VOCAB)
    logits = (hidden @ weight.T).requires_grad_()
    expected = objective(logits, targets, slots).total()
    mesh = init_device_mesh("cpu", (2,))
    spread = distribute_tensor(logits.detach(), mesh, [Shard(1)]).requires_grad_()
    found = objective(spread, targets, slots).total()
    (grad,) = torch.autograd.grad(expected, logits)
    (grad_spread,) = torch.autograd.grad(found, spread)
    return [(found, expected), (grad_spread.full_tensor(), grad)]


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


def be_a_rank(rank, out):
    torch.set_num_threads(1)  # in a fork, which has none of the other threads
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=2)
    found = {"readable": readable_case()}
    for trained in (False, True):
        found["trained" if trained else "frozen"] = data_parallel_case(trained)
    detached = {name: [(a.detach(), e.detach()) for a, e in pairs] for name, pairs in found.items()}
    torch.save(detached, f"{out}/rank-{dist.get_rank()}.pt")
    dist.destroy_process_group()
