"""What the host does while the device computes: it asks nothing per block, and torch.compile leaves it alone."""

import pytest
import torch
from fused_problem import EVERYTHING, F64, VOCAB, H, problem
from torch.utils._python_dispatch import TorchDispatchMode

from coord_losses import CoordObjective, supervised_rows

ASKING = {"_local_scalar_dense", "is_nonzero", "item", "nonzero", "equal", "masked_select"}
ASKING |= {"lift_fresh"}  # `torch.tensor` of a number or list: a copy from the host waits as well
ASKING |= {"_unique2", "unique_dim", "unique_consecutive", "bincount", "histc"}
ASKING_BACKWARD = {"prod", "cumprod", "_linalg_det", "_linalg_slogdet"}
"""Operations whose derivatives branch on values. Where a `TorchDispatchMode` is active, torch takes a way without a
question (`isTensorSubclassLike` in FunctionsManual.cpp), so that the question itself is never seen."""


class Questions(TorchDispatchMode):
    """Counts the operations for which the host waits for the device; `Tensor.tolist` is patched in beside them."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.asked = []
        tolist = torch.Tensor.tolist
        monkeypatch.setattr(torch.Tensor, "tolist", lambda x: self.asked.append("tolist") or tolist(x))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masked = name in ("index", "index_put", "index_put_") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        sized = name == "repeat_interleave" and (kwargs or {}).get("output_size") is None
        multiplied = name in ("scatter_reduce", "index_reduce") and "prod" in args
        if name in ASKING | ASKING_BACKWARD or masked or sized or multiplied:
            self.asked.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("chunk_rows", [100, 3])
@pytest.mark.parametrize("ids", ["coordinates", "coordinates and markers"])
@pytest.mark.parametrize("dtype", [F64, torch.bfloat16])
def test_a_step_asks_the_device_once_however_many_chunks(trained, chunk_rows, ids, dtype, monkeypatch):
    hidden, weight, targets, slots = problem(9, 3, VOCAB, 90, 4, dtype)
    hidden.requires_grad_(), weight.requires_grad_(trained)
    ids = torch.tensor([*VOCAB.ids] if ids == "coordinates" else [*VOCAB.ids, 3, 80])
    offsets = torch.zeros(len(ids), H, dtype=torch.promote_types(dtype, torch.float32))
    objective = CoordObjective(EVERYTHING, VOCAB)
    parts = {"offset_ids_K": ids, "chunk_rows": chunk_rows}
    objective.fused(hidden, weight, targets, slots, offsets, **parts)  # ids are read once and not again
    with Questions(monkeypatch) as seen:
        output = objective.fused(hidden, weight, targets, slots, offsets.requires_grad_(), **parts)
        output.total().backward()
        output.diagnostics()
    assert seen.asked == ["tolist"]  # `Batch.sort`: sizes and checks together


def test_the_readable_form_asks_once_and_selecting_rows_once(monkeypatch):
    hidden, weight, targets, slots = problem(9, 3, VOCAB, 90, 4)
    labels = torch.cat([torch.tensor([-100]), targets])[None]
    with Questions(monkeypatch) as seen:
        hidden_NH, targets_N = supervised_rows(torch.cat([hidden, hidden[:1]])[None], labels)
        assert seen.asked == ["tolist"]
        CoordObjective(EVERYTHING, VOCAB)(hidden_NH.requires_grad_() @ weight.T, targets_N, slots).total().backward()
    assert seen.asked == ["tolist", "tolist"]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "trained"), [("fused", False), ("readable", True)])
def test_torch_compile_leaves_the_objective_alone(form, trained):
    """One graph break for the call: what stands before and after it is compiled, values and gradients are exact."""
    hidden, weight, targets, slots = problem(9, 3, VOCAB, 90, 4)
    inputs = hidden.requires_grad_(), weight.requires_grad_(trained)
    objective = CoordObjective(EVERYTHING, VOCAB)

    def loss(hidden, weight):
        hidden = torch.tanh(hidden) * 2
        if form == "fused":
            output = objective.fused(hidden, weight, targets, slots)
        else:
            output = objective(hidden @ weight.T, targets, slots)
        return output.total({"tokens": 7, "coord_tokens": 5, "objects": 2}).sin()

    torch._dynamo.reset()
    explained = torch._dynamo.explain(loss)(*inputs)
    assert explained.graph_break_count <= 2, explained.break_reasons
    wanted = [x for x in inputs if x.requires_grad]
    expected = loss(*inputs)
    found = torch.compile(loss, backend="aot_eager")(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for g, e in zip(torch.autograd.grad(found, wanted), torch.autograd.grad(expected, wanted), strict=True):
        torch.testing.assert_close(g, e, rtol=1e-12, atol=1e-12)
