"""Numbers of NumPy and torch count as numbers wherever a number is taken."""

import numpy as np
import pytest
from coco_builder import coco

from coord_eval import AnswerSettings, parse_answer, score

TEXT = '[{"bbox_2d": [100, 100, 500, 500], "label": "cat"}]'


class TorchLike:
    """What a tensor offers: `dtype`, `tolist` and `item`; torch is no dependency here."""

    dtype = "torch.float32"

    def __init__(self, value):
        self.value = value

    def tolist(self):
        return self.value

    item = tolist


@pytest.mark.parametrize("whole", [int, np.int32, np.int64, np.uint8, TorchLike])
@pytest.mark.parametrize("real", [float, np.float16, np.float32, np.float64, TorchLike])
def test_score_takes_scalars_of_numpy_and_torch(whole, real):
    truth = {
        "images": [{"id": whole(1), "file_name": "a.jpg", "width": whole(200), "height": real(100)}],
        "categories": [{"id": whole(1), "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": whole(1), "category_id": whole(1), "bbox": [*map(real, (20, 10, 80, 40))]}
        ],
    }
    results = [{"image_id": whole(1), "category_id": whole(1), "bbox": np.array([20, 10, 80, 40]), "score": real(0.5)}]
    assert score(truth, results).coco["AP"] == pytest.approx(1)
    answers = [{"image_id": whole(1), "text": TEXT, "width": whole(200), "height": real(100)}]
    assert score(truth, answers, answers=AnswerSettings(scale=real(1000))).coco["AP"] == pytest.approx(1)


@pytest.mark.parametrize("scale", [1000, np.int64(1000), np.float32(1000), TorchLike(1000.0)])
def test_parse_answer_takes_scalars_as_scale_and_size(scale):
    assert parse_answer(TEXT, scale=scale).objects[0].box == (0.1, 0.1, 0.5, 0.5)
    for size in ((scale, scale), np.array([1000, 1000])):
        assert parse_answer(TEXT, image_size=size).objects[0].box == (0.1, 0.1, 0.5, 0.5)


def test_score_takes_arrays_of_log_probabilities():
    truth = coco((1, 1, [20, 10, 80, 40]), size=(200, 100))
    text = "<obj_start>cat<|coord_100|><|coord_100|><|coord_500|><|coord_500|><obj_end>"
    record = {"image_id": 1, "text": text, "coord_logprobs": np.full(4, -0.1), "desc_logprobs": [np.array([-0.2])]}
    assert score(truth, [record]).score_source == "coord_desc_logprobs"


@pytest.mark.parametrize("scale", [np.float32("nan"), np.int64(0), np.bool_(True), TorchLike([1.0])])
def test_parse_answer_refuses_scalars_that_are_no_scale(scale):
    with pytest.raises(ValueError, match="scale: expected a positive number"):
        parse_answer(TEXT, scale=scale)
