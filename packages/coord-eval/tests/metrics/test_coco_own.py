"""Own thresholds, areas and limits against pycocotools with the same parameters, and precision-recall curves."""

import numpy as np
import pytest
from by_pycocotools import by_pycocotools

from coord_codec import Instance
from coord_eval import CocoParams, InputError, ReportSettings, score
from coord_eval.cli.main import main

PARAMS = CocoParams(
    iou_thresholds=(0.3, 0.5, 0.9), areas={"tiny": (0, 40.0**2), "huge": (300.0**2, 1e10)}, max_detections=(1, 2)
)


def own_numbers(truth, results):
    """Return AP and AR of pycocotools with the same parameters."""
    ranges = [[0, 1e10], *map(list, PARAMS.areas.values())]
    own = {"iouThrs": np.array(PARAMS.iou_thresholds), "maxDets": list(PARAMS.max_detections)}
    run = by_pycocotools(truth, results, **own, areaRng=ranges, areaRngLbl=["all", *PARAMS.areas])
    precision, recall = run.eval["precision"], run.eval["recall"]

    def mean(part):
        return part[part > -1].mean() if (part > -1).any() else -1

    found = {"AP": mean(precision[..., 0, -1])}
    found |= {f"AP@{t:g}": mean(precision[i, ..., 0, -1]) for i, t in enumerate(PARAMS.iou_thresholds)}
    found |= {f"AR@{n}": mean(recall[..., 0, i]) for i, n in enumerate(PARAMS.max_detections)}
    for i, name in enumerate(PARAMS.areas, 1):
        found |= {f"AP_{name}": mean(precision[..., i, -1]), f"AR_{name}": mean(recall[..., i, -1])}
    return found


@pytest.mark.slow
def test_own_parameters_equal_pycocotools(coco_set, noisy_results):
    results = noisy_results(coco_set, 0)
    evaluation = score(coco_set, results, report=ReportSettings(params=PARAMS))
    assert evaluation.coco_own == pytest.approx(own_numbers(coco_set, results), abs=1e-12)
    assert evaluation.to_dict()["coco_own"] == evaluation.coco_own
    assert score(coco_set, results).coco_own == {}


@pytest.mark.slow
def test_pr_curves_have_ap_as_their_mean(coco_set, noisy_results, tmp_path):
    evaluation = score(coco_set, noisy_results(coco_set, 0))
    for name, key in (("0.5", "AP50"), ("0.75", "AP75"), ("0.5:0.95", "AP")):
        curve = evaluation.pr_curves[name]
        assert np.mean(curve) == pytest.approx(evaluation.coco[key])
        assert (np.diff(curve) <= 1e-12).all()
    assert evaluation.pr_curves["recall"][::50] == [0.0, 0.5, 1.0]
    assert "precision by recall" in evaluation.write_report(tmp_path).read_text()
    assert score({**coco_set, "annotations": []}, []).pr_curves == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iou_thresholds": [1.5]}, "iou_thresholds"),
        ({"max_detections": [0]}, "max_detections"),
        ({"areas": {"x": (5, 1)}}, r"areas\['x'\]"),
    ],
)
def test_coco_params_refuse(settings, message):
    with pytest.raises(InputError, match=message):
        CocoParams(**settings)


def test_coco_params_accept_arrays():
    params = CocoParams(iou_thresholds=np.array([0.5, 0.75]), max_detections=np.array([1, 10]))
    assert params == CocoParams(iou_thresholds=[0.5, 0.75], max_detections=[1, 10])


@pytest.mark.slow
def test_score_command_takes_own_parameters(coco_set, noisy_results, tmp_path, capsys):
    import json

    for name, data in (("t", coco_set), ("p", noisy_results(coco_set, 0))):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    words = ["score", "--ground-truth", str(tmp_path / "t.json"), "--predictions", str(tmp_path / "p.json")]
    words += ["--out", str(tmp_path / "out"), "--iou", "0.3", "0.5", "--max-dets", "300", "--area", "tiny=0:1600"]
    assert main(words) == 0
    assert "AP_tiny" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())["coco_own"]
    assert list(found) == ["AP", "AP@0.3", "AP@0.5", "AR@300", "AP_tiny", "AR_tiny"]
    assert main([*words[:-1], "tiny"]) == 2
    assert "NAME=LOW:HIGH" in capsys.readouterr().err


@pytest.mark.slow
def test_limits_in_any_order_give_the_same_figures(coco_set, noisy_results):
    results = noisy_results(coco_set, 0)
    found = [
        score(coco_set, results, report=ReportSettings(params=CocoParams(max_detections=limits))).coco_own
        for limits in ((1, 2, 300), (300, 1, 2))
    ]
    assert found[0] == found[1] and [*found[0]][-3:] == ["AR@1", "AR@2", "AR@300"]
    assert found[0]["AR@1"] < found[0]["AR@2"] <= found[0]["AR@300"]
    unsized = [Instance(image="a.jpg", objects=[{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}])]
    with pytest.raises(InputError, match="areas: the ground truth states no image sizes"):
        _ = score(unsized, [], report=ReportSettings(params=PARAMS)).coco_own
