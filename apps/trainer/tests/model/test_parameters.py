"""Numbers of parameters, those of a base in 4 bits among them."""

import pytest
import torch

from coord_codec import InputError
from coord_trainer.model.parameters import count_parameters, report_quantised


class Params4bit(torch.nn.Parameter):
    """A weight as bitsandbytes holds it: two numbers of 4 bits in a byte."""


def test_bytes_of_4_bits_hold_two_numbers_and_are_not_trained(capsys):
    model = torch.nn.Linear(4, 3)
    model.bias.requires_grad_(False)
    assert count_parameters(model) == {"all": 15, "trained": 12, "offsets": 0}
    with pytest.raises(InputError, match=r"training\.quant_bits: no layer"):
        report_quantised(model)
    model.packed = Params4bit(torch.zeros(10, dtype=torch.uint8), requires_grad=False)
    assert count_parameters(model) == {"all": 35, "trained": 12, "offsets": 0}
    report_quantised(model)
    assert "20 of 35 parameters" in capsys.readouterr().out
