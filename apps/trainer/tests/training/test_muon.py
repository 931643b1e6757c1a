import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from coord_codec import InputError
from coord_trainer.training.muon import MuonAdamW, muon_groups, orthogonal

RATE, DECAY = 0.02, 0.1


def naive_direction(matrix):
    """Newton-Schulz of one matrix in float64, element by element of the published polynomial on its singular values."""
    u, values, vt = torch.linalg.svd(matrix.double(), full_matrices=False)
    values = values / values.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return u @ torch.diag(values) @ vt


class Network(nn.Sequential):
    def get_output_embeddings(self):
        return self[-1]


def network():
    torch.manual_seed(3)
    inner = (nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 6), nn.Linear(6, 10))
    return Network(nn.Embedding(7, 6), *inner, nn.Linear(10, 7, bias=False))


def backward(model, seed):
    torch.manual_seed(seed)
    model.zero_grad()
    nn.functional.cross_entropy(model(torch.randint(7, (5,))), torch.randint(7, (5,))).backward()


def adamw(model):
    rest = {"betas": (0.9, 0.95), "eps": 1e-8, "lr": RATE}
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": DECAY, **rest}, {"params": others, "weight_decay": 0.0, **rest}]
    )


def muon(model):
    return MuonAdamW(muon_groups(model, adamw(model).param_groups))


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 8), (1, 5)])
def test_orthogonal_is_the_published_polynomial_of_the_singular_values(shape):
    torch.manual_seed(0)
    matrices = torch.randn(4, *shape)
    for found, matrix in zip(orthogonal(matrices), matrices, strict=True):
        torch.testing.assert_close(found, naive_direction(matrix).float(), rtol=2e-4, atol=2e-5)
        values = torch.linalg.svdvals(found)
        assert values.min() > 0.5 and values.max() < 1.3
    assert torch.equal(orthogonal(torch.zeros(1, *shape)), torch.zeros(1, *shape))


def test_matrices_of_linear_layers_and_nothing_else_are_moved_by_muon():
    model = network()
    names = {id(p): name for name, p in model.named_parameters()}
    groups = muon_groups(model, adamw(model).param_groups)
    found = {count: {names[id(p)] for g in groups if g["muon"] == count for p in g["params"]} for count in (1, 0)}
    assert found[1] == {"1.weight", "3.weight", "4.weight"}
    assert found[0] == set(names.values()) - found[1]
    assert [(g["muon"], g["weight_decay"], g["lr"]) for g in groups] == [
        (1, DECAY, RATE),
        (0, DECAY, RATE),
        (0, 0.0, RATE),
    ]


def test_steps_are_those_of_a_naive_muon_and_of_adamw():
    model, twin = network(), network()
    optimizer, plain = muon(model), adamw(twin)
    momenta = {}
    for seed in range(4):
        backward(model, seed)
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            q.grad = p.grad.clone()  # so that AdamW sees the gradients of the model that Muon moves
        before = {name: p.detach().double() for name, p in model.named_parameters()}
        gradients = {name: p.grad.double() for name, p in model.named_parameters()}
        optimizer.step()
        plain.step()
        for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
            if name not in ("1.weight", "3.weight", "4.weight"):
                assert torch.equal(p, q), name
                continue
            momenta[name] = 0.95 * momenta.get(name, 0) + 0.05 * gradients[name]
            ahead = 0.05 * gradients[name] + 0.95 * momenta[name]
            wanted = before[name] * (1 - RATE * DECAY)
            wanted -= RATE * 0.2 * math.sqrt(10) * naive_direction(ahead)
            torch.testing.assert_close(p.double(), wanted, rtol=1e-3, atol=1e-6)
            assert p.grad is not None


def test_a_patch_embedding_moves_as_the_linear_layer_that_it_is():
    patch = (2, 4, 4)
    conv, linear = nn.Conv3d(3, 8, patch, patch), nn.Linear(96, 8)
    linear.load_state_dict({"weight": conv.weight.detach().flatten(1), "bias": conv.bias.detach()})
    torch.manual_seed(0)
    gradients = torch.randn(2, 8, 96)
    for layer in (conv, linear):
        optimizer = muon(layer)
        for gradient in gradients:
            layer.weight.grad, layer.bias.grad = gradient.view_as(layer.weight).clone(), torch.ones(8)
            optimizer.step()
    assert torch.equal(conv.weight.flatten(1), linear.weight) and torch.equal(conv.bias, linear.bias)
    overlapping = nn.Conv3d(3, 8, patch, 1)
    assert not any(group["muon"] for group in muon_groups(overlapping, adamw(overlapping).param_groups))


def test_a_layer_that_reads_patches_side_by_side_is_a_matrix_for_each():
    class Merger(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2, hidden_size=3))
            self.reads_four, self.other = nn.Linear(12, 10, bias=False), nn.Linear(10, 12, bias=False)

    torch.manual_seed(0)
    model = Merger()
    groups = muon_groups(model, [{"params": list(model.parameters()), "lr": RATE, "weight_decay": DECAY}])
    assert [(group["muon"], group["params"][0].shape) for group in groups] == [(4, (10, 12)), (1, (12, 10))]
    before = {name: p.detach().double() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer = MuonAdamW(groups)
    optimizer.step()
    for name, p in model.named_parameters():
        blocks = p.grad.double().chunk(4 if name == "reads_four.weight" else 1, dim=1)
        direction = torch.cat([naive_direction(block) for block in blocks], dim=1)
        rate = RATE * 0.2 * math.sqrt(max(blocks[0].shape))
        wanted = before[name] * (1 - RATE * DECAY) - rate * direction
        torch.testing.assert_close(p.double(), wanted, rtol=1e-3, atol=1e-6)


def test_updates_agree_with_pytorchs_muon_which_computes_in_bfloat16():
    model, twin = network(), network()
    optimizer = muon(model)
    theirs = torch.optim.Muon(
        [twin[at].weight for at in (1, 3, 4)], lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"
    )
    start = {at: model[at].weight.detach().clone() for at in (1, 3, 4)}
    for seed in range(3):
        backward(model, seed)
        for at in start:
            twin[at].weight.grad = model[at].weight.grad.clone()
        optimizer.step()
        theirs.step()
    for at, was in start.items():
        ours, other = model[at].weight - was, twin[at].weight - was
        assert nn.functional.cosine_similarity(ours.flatten(), other.flatten(), dim=0) > 0.99
        assert (ours - other).norm() < 0.15 * other.norm()


def test_state_that_is_read_back_goes_on_bit_for_bit():
    model = network()
    optimizer = muon(model)
    for seed in range(2):
        backward(model, seed)
        optimizer.step()
    twin = copy.deepcopy(model)
    again = muon(twin)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for side, moved in ((model, optimizer), (twin, again)):
        backward(side, 2)
        moved.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize("change", ["fewer groups", "other matrices", "fewer parameters", "AdamW's"])
def test_state_of_other_groups_is_refused_in_one_line(change):
    state = muon(network()).state_dict()
    first, *others = state["param_groups"]
    if change == "fewer groups":
        first["params"] += others.pop()["params"]
    elif change == "other matrices":
        first["muon"] = 4
    elif change == "fewer parameters":
        first["params"].pop()
    else:
        state = adamw(network()).state_dict()
    if change != "AdamW's":
        state["param_groups"] = [first, *others]
    with pytest.raises(InputError, match=r"run\.resume: .*optimizer\.pt.*model\.path") as refusal:
        muon(network()).load_state_dict(state)
    assert "\n" not in str(refusal.value)


def test_matrices_without_a_gradient_stay_and_closures_are_called():
    model = network()
    optimizer = muon(model)
    before = copy.deepcopy(model.state_dict())
    assert optimizer.step(lambda: 1.5) == 1.5
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_matrices_of_one_shape_keep_rate_decay_and_blocks_of_their_groups():
    """They are stacked for speed: rates, decays and patches side by side may differ within a stack."""
    torch.manual_seed(0)
    wanted, groups = [], []
    for blocks, rate, decay, dtype in (
        (1, 0.01, 0.0, torch.float32), (1, 0.02, 0.3, torch.float32), (2, 0.03, 0.1, torch.float32),
        (0, 0.5, 0.0, torch.float32), (1, 0.04, 0.2, torch.float64), (1, 0.01, 0.5, torch.float32),
    ):  # fmt: skip
        matrix = nn.Parameter(torch.randn(4, 8, dtype=dtype))
        matrix.grad = torch.randn(4, 8, dtype=dtype)
        groups.append({"params": [matrix], "lr": rate, "weight_decay": decay, "muon": blocks})
        if blocks:
            parts = matrix.grad.double().chunk(blocks, dim=1)
            size = rate * 0.2 * math.sqrt(max(parts[0].shape))
            direction = torch.cat([naive_direction(part) for part in parts], dim=1)
            wanted.append((matrix, matrix.detach().double() * (1 - rate * decay) - size * direction))
    still = nn.Parameter(torch.ones(4, 8))
    groups.append({"params": [still], "lr": 0.1, "weight_decay": 0.1, "muon": 1})
    optimizer = MuonAdamW(groups)
    optimizer.step()
    for matrix, expected in wanted:
        torch.testing.assert_close(matrix.detach().double(), expected, rtol=1e-3, atol=1e-5)
    assert torch.equal(still, torch.ones(4, 8)) and not optimizer.state[still]
    assert "exp_avg" in optimizer.state[groups[3]["params"][0]]
