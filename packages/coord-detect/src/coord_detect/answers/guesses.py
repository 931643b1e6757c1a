"""Names the call that does it, where a name of another detection library is not one of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from coord_codec.other_words import argument_hint, use

OF_RESULT = {
    "boxes": ".boxes_xyxy, .scores and .class_ids are arrays of this result (supervision: .to_supervision())",
    "xyxy": ".boxes_xyxy",
    "xywh": ".to_coco(), whose bbox is x, y, width, height",
    "confidence": ".scores",
    "conf": ".scores",
    "class_id": ".class_ids",
    "cls": ".class_ids",
    "class_name": ".labels",
    "names": ".names of the detector; .labels are those of the objects",
    "data": ".labels, .scores and .class_ids",
    "plot": ".drawn()",
    "render": ".drawn()",
    "orig_shape": ".size, width and height in pixels",
    "orig_img": ".drawn(), or the image itself",
    "tojson": ".to_json()",
    "summary": ".to_dict()",
    "pandas": ".to_pandas()",
    "to_df": ".to_pandas()",
    "to_csv": ".to_pandas().to_csv(FILE)",
    "predictions": ".to_dict()",
    "dict": ".to_dict()",
    "save_txt": ".to_coco(), or `predict --export yolo` for files of a folder",
    "to_detections": ".to_supervision()",
    "with_nms": "nothing: answers need no suppression; views= fuses boxes",
    "with_threshold": "found[found.scores > 0.5], or min_score= of the call",
    "filter": "found[found.scores > 0.5], or min_score= of the call",
    "cpu": ".boxes_xyxy, which is a NumPy array already",
    "numpy": ".boxes_xyxy, which is a NumPy array already",
}
OF_OBJECT = {
    "boxes": ".boxes_xyxy of the result: one image gives one result, and its items are objects",
    "xyxy": ".box",
    "bbox": ".box",
    "conf": ".score",
    "confidence": ".score",
    "cls": ".label",
    "class_id": ".label; .class_ids of the result has the numbers",
    "class_name": ".label",
    "name": ".label",
    "masks": ".points, of a model that was trained with data.geometry",
    "show": ".show() of the result: one image gives one result, and its items are objects",
    "plot": ".drawn() of the result: one image gives one result, and its items are objects",
    "save": ".save(folder) of the result: one image gives one result, and its items are objects",
}
OF_DETECTOR = {
    "from_pretrained": "Detector(PATH)",
    "train": "coord_trainer.train(CONFIG, data={...})",
    "fit": "coord_trainer.train(CONFIG, data={...})",
    "val": "`uv run apps/trainer evaluate MODEL --out DIR`, or coord_eval.score(ANNOTATIONS, PREDICTIONS)",
    "evaluate": "`uv run apps/trainer evaluate MODEL --out DIR`, or coord_eval.score(ANNOTATIONS, PREDICTIONS)",
    "export": "`uv run apps/exporter merge BASE ADAPTER OUT`",
    "track": ".predict(frames), and a tracker of supervision on each result's .to_supervision()",
    "to": "nothing: the detector runs on the GPU if there is one",
    "cuda": "nothing: the detector runs on the GPU if there is one",
    "cpu": "nothing: CUDA_VISIBLE_DEVICES= keeps it on the CPU",
    "eval": "nothing: a detector does not train",
    "half": 'Detector(PATH, settings=["model.dtype=bfloat16"])',
    "class_names": ".names",
    "classes": ".names",
    "model_names": ".names",
    "id2label": ".names, in the order of the class ids",
    "detect": ".predict(images)",
    "generate": ".predict(images); .text of a result is the answer",
    "info": "print(detector)",
    "config": ".names for the labels by class id; the settings of the answers stand in coordexp.json of the model",
    "optimize_for_inference": 'Detector(PATH, speed="exact")',
    "post_process_object_detection": ".predict(images), whose results are in pixels",
    "set_classes": 'Detector(PATH, labels=["cat", "dog"]), or only=[...] for phrases that the model would not say',
    "push_to_hub": "the folder itself, as transformers writes it",
}
KEYS_OF_OBJECT = {
    **{"label": "label", "class": "label", "name": "label", "score": "score", "confidence": "score"},
    **{"box": "box", "bbox": "box", "boxes": "box", "xyxy": "box"},
}
"""Keys of an object in the dictionaries of other libraries, and the attribute."""
KEYS = ("boxes", "scores", "labels", "masks", "predictions")
"""Keys of the dictionaries that transformers and other libraries return, by which their readers recognise one."""


class NamesTheCall:
    """Base of classes whose missing attributes are explained; `CALLS` has what does it for each name."""

    CALLS: ClassVar[Mapping[str, str]] = {}

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_missing(type(self).__name__, name, self.CALLS), name=name, obj=self)


class ClassNamesTheCall(type):
    """Metaclass that explains missing attributes of the class itself, such as `from_pretrained`."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(_missing(cls.__name__, name, OF_DETECTOR), name=name, obj=cls)


def refuse_arguments(call: str, given: Iterable[str], known: str = "") -> None:
    """Raise a `TypeError` for the first argument that a call does not have, with the one that does it."""
    for name in given:
        ours = argument_hint(name)
        hint = use(ours) if ours else f"; its sections are {known}" if known else ""
        raise TypeError(f"{call} has no argument {name!r}{hint}")


def refuse_key(key: object) -> None:
    """Raise a `TypeError` if a result is indexed by a name, as the dictionaries of other libraries are."""
    if isinstance(key, str):
        plural = {"score": "scores", "label": "labels", "boxes": "boxes_xyxy", "predictions": "to_dict()"}
        raise TypeError(f"a result is no dictionary with {key!r}; use .{plural.get(key, key)}, or .to_dict()")


def _missing(owner: str, name: str, calls: Mapping[str, str]) -> str:
    return f"{owner} has no attribute {name!r}{use(calls.get(name, ''))}"
