"""Pixels as numbers of their levels: decoded to the bit, or left as they are."""

import numpy as np
import pytest
import torch

from coord_trainer.data.levels import LevelCoder

BYTES = np.random.default_rng(0).integers(0, 256, (36, 1536))
CLIP_MEAN, CLIP_STD = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])


def normalised(mean, std):
    """Bytes as a processor normalises them, in float32; of three channels, a third of the columns each."""
    scaled = BYTES.reshape(36, 3, 512).astype(np.float32) * np.float32(1 / 255)
    return ((scaled - np.float32(mean)[:, None]) / np.float32(std)[:, None]).reshape(36, 1536)


CODED = {
    "alike": (normalised([0.5] * 3, [0.5] * 3), np.uint8),
    "257 levels": (np.arange(257, dtype=np.float32), np.uint16),
    "each channel": (normalised(CLIP_MEAN, CLIP_STD), np.uint16),
    "zeros of both signs": (np.float32([[0.0, -0.0], [np.nan, np.inf]]), np.uint8),
    "one value": (np.float32(3.5), np.uint8),
    "turned": (normalised([0.5] * 3, [0.5] * 3).T, np.uint8),
}


@pytest.mark.parametrize("name", CODED)
def test_levels_return_each_bit(name):
    values, dtype = CODED[name]
    coder = LevelCoder()
    values = np.asarray(values)
    coder.coded(values.reshape(-1)[:1])  # what is met later is learnt too
    coded = coder.coded(values)
    assert coded.codes.dtype == dtype
    decoded = coded.decoded()
    assert decoded.dtype == torch.float32 and decoded.shape == np.shape(values)
    assert decoded.numpy().tobytes() == np.ascontiguousarray(values).tobytes()


def test_what_was_coded_stays_when_levels_are_added():
    coder = LevelCoder()
    first = coder.coded(np.float32([1.0, 2.0]))
    coder.coded(np.float32([0.5, 1.5, 2.5]))
    assert first.decoded().tolist() == [1.0, 2.0]


def test_values_of_too_many_levels_are_left():
    coder = LevelCoder()
    assert coder.coded(np.random.default_rng(0).normal(size=5000).astype(np.float32)) is None
    assert coder.coded(np.float32([1.0])).decoded().tolist() == [1.0]
