"""The pixels that reach the model: those of the upright 8-bit image, for every kind of file."""

import json

import numpy as np
import pytest
from PIL import Image

from coord_data.reading.image_set import load_annotated
from coord_data.reading.rules import ReadingRules
from coord_trainer.data.mixture import Mixture
from coord_trainer.data.samples import Samples
from coord_trainer.data.targets import TargetWriter

RAMP = np.add.outer(np.arange(48), np.arange(64)).astype(np.uint8)
RGB = np.stack([RAMP, RAMP[::-1], 255 - RAMP], axis=2)
TURNED = Image.Exif()
TURNED[0x0112] = 6


def grey(values):
    return np.repeat(values[:, :, None], 3, axis=2)


ALPHA = np.dstack([RGB, np.where(RAMP > 50, 255, 0).astype(np.uint8)])
KINDS = {
    "upright": (lambda p: Image.fromarray(RGB).save(p), RGB),
    "orientation 6": (lambda p: Image.fromarray(RGB).save(p, exif=TURNED), np.rot90(RGB, -1)),
    "16 bits": (lambda p: Image.fromarray(RAMP.astype(np.uint16) * 257).save(p), grey(RAMP)),
    "alpha": (lambda p: Image.fromarray(ALPHA).save(p), np.where(RAMP[..., None] > 50, RGB, 255)),
}


@pytest.fixture(scope="module")
def read(opened_run, tmp_path_factory):
    """Images of every kind as training samples, and as an answering checkpoint sees them."""
    config, opened, _, _ = opened_run
    folder = tmp_path_factory.mktemp("pixels")
    lines = []
    for n, (kind, (save, expected)) in enumerate(KINDS.items()):
        save(folder / f"{n}.png")
        height, width, _ = expected.shape
        objects = [{"desc": "red circle", "bbox": [0, 0, 0.5, 0.5]}]
        lines.append(
            json.dumps({"image": f"{n}.png", "width": width, "height": height, "objects": objects, "id": kind})
        )
    (folder / "a.jsonl").write_text("\n".join(lines))
    images = load_annotated(folder / "a.jsonl", ReadingRules(strict=True))
    writer = TargetWriter(config.data, True, 0, opened.vocab)
    return opened, images, Samples(Mixture.of_one(images, config.data), opened.encode, [writer], opened.markers)


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_at_the_model_are_those_of_the_upright_8_bit_image(read, kind):
    opened, images, samples = read
    index = list(KINDS).index(kind)
    reference = Image.fromarray(np.ascontiguousarray(KINDS[kind][1]).astype(np.uint8))
    wanted = opened.processor.image_processor(images=[reference], return_tensors="pt")
    sample = samples[index]
    assert sample["image_grid_thw"].tolist() == wanted["image_grid_thw"].tolist()
    assert (sample["pixel_values"] == wanted["pixel_values"]).all()
    assert images.image(index).tobytes() == reference.tobytes()  # what predict_images hands to the processor


def test_kinds_are_counted(read):
    assert sorted(read[1].annotations.notes.values()) == [1, 1, 1]
