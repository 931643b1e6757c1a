"""The kernel of a GPU against its definition, written out."""

import pytest
import torch
from naive_varlen import naive_varlen_attn

from coord_detect.model import attention

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("width", [64, 72, 128])
def test_kernel_has_the_values_and_gradients_of_its_definition(causal, width):
    torch.manual_seed(0)
    bounds = torch.tensor([0, 3, 40, 107], dtype=torch.int32, device="cuda")
    settings = {"device": "cuda", "dtype": torch.bfloat16}
    rows = [torch.randn(107, heads, width, **settings, requires_grad=True) for heads in (4, 2, 2)]
    how = {"scale": width**-0.5, "window_size": (-1, 0) if causal else (-1, -1)}
    found = attention.varlen_attn(*rows, bounds, bounds, 67, 67, **how)
    expected = naive_varlen_attn(*rows, bounds, bounds, 67, 67, **how)
    upstream = torch.randn_like(found)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
    gradients = (torch.autograd.grad(out, rows, upstream) for out in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)
