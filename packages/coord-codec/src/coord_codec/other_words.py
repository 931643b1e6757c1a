"""Words of other libraries, each with ours: one table for command lines, settings, calls and names of modules."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """Words of other libraries that mean the same, apart by blanks.

    Attributes:
        words: the words, with underscores
        call: what does it in a Python call
        line: what does it on a command line, the first that a command has: an option, a setting `section.key=VALUE`, or
            a sentence, which is true of every command
    """

    words: str
    call: str
    line: tuple[str, ...]


_GPU = "nothing: the GPU is used if there is one, and CUDA_VISIBLE_DEVICES= keeps to the CPU"
_PIXELS = "nothing: the checkpoint states its limits of pixels"
_SUPPRESSION = "nothing: answers need no suppression"

ARGUMENTS = (
    Row(
        "conf threshold confidence score_threshold conf_threshold conf_thres score_thr min_conf box_threshold",
        "min_score=",
        ("--min-score", "nothing: all boxes count, in the order of their scores"),
    ),
    Row(
        "source input img imgs image",
        "the images as the first argument",
        ("the images as an argument, without a word before them",),
    ),
    Row(
        "weights checkpoint ckpt pretrain_weights",
        "the path as the first argument",
        ("the model's path, without a word before it",),
    ),
    Row("model_name served_model_name", "name=", ("--model",)),
    Row("endpoint url base_url", "the URL as the first argument", ("--endpoint",)),
    Row("save", ".save(folder) of the result", ("--out",)),
    Row("save_txt", ".to_coco() of the result, or `predict --export yolo`", ("--export yolo", "predict --export yolo")),
    Row(
        "save_dir output_dir output project out_dir outdir", ".save(folder) of the result", ("--out", "run.dir=FOLDER")
    ),
    Row("show", ".show() of the result", ("--draw",)),
    Row("stream", "nothing: several images are answered while their results are read", ()),
    Row("verbose", "progress=", ()),
    Row(
        "batch batch_size bs per_device_batch_size",
        "batch=",
        ("--batch-size", "training.per_device_train_batch_size=N", "evaluation.batch_size=N"),
    ),
    Row(
        "imgsz img_size image_size imgs_size resolution",
        "nothing: the checkpoint states its limits of pixels; views= shows an image larger or in tiles",
        ("data.max_pixels=N (width times height)", f"{_PIXELS}; --views shows an image larger or in tiles"),
    ),
    Row("iou nms nms_threshold", "nothing: answers need no suppression; views= fuses boxes", (_SUPPRESSION,)),
    Row("max_det max_dets", 'Detector(PATH, settings=["data.max_objects=N"])', ("data.max_objects=N",)),
    Row("augment tta", 'views="mirror"', ("--views mirror", "data.augment.flip=0.5")),
    Row("classes class_names", 'labels=["cat"], which keeps the boxes with that label', ("--label",)),
    Row("device gpu cuda gpus", _GPU, (_GPU,)),
    Row("half fp16 bf16 dtype torch_dtype", 'settings=["model.dtype=bfloat16"]', ("model.dtype=bfloat16",)),
    Row("bgr", "images[..., ::-1], which makes RGB of BGR", ()),
    Row(
        "data dataset dataset_dir",
        'data={"annotations": FILE, "images": FOLDER}',
        ("data.annotations=FILE", "the data's path, without a word before it"),
    ),
    Row("annotations gt ground_truth", 'data={"annotations": FILE}', ("--ground-truth", "data.annotations=FILE")),
    Row("dt pred preds predictions", "the predictions as the second argument", ("--predictions",)),
    Row("images image_dir img_dir", 'data={"images": FOLDER}', ("--images", "data.images=FOLDER")),
    Row("epochs num_epochs", 'training={"num_train_epochs": N}', ("training.num_train_epochs=N",)),
    Row("max_steps steps", 'training={"max_steps": N}', ("training.max_steps=N",)),
    Row("lr lr0 learning_rate", 'training={"learning_rate": RATE}', ("training.learning_rate=RATE",)),
    Row("lora_r rank", 'training={"lora_rank": N}', ("training.lora_rank=N",)),
    Row("resume", 'run={"resume": True}', ("run.resume=true", "the same command again, which continues")),
    Row("seed", 'run={"seed": N}', ("--seed", "run.seed=N")),
    Row("num_workers", "workers=", ("--workers", "training.dataloader_num_workers=N")),
    Row("split subset", "the split's file or folder as the first argument", ()),
    Row("cfg config_file yaml", "the configuration as the first argument", ("--config",)),
)
"""Arguments, options and settings."""

_COMMANDS = (
    ("val valid evaluate eval test", ("evaluate", "score", "inspect", "`coord-eval score` on predictions.jsonl")),
    ("validate check lint verify", ("inspect", "score", "evaluate")),
    ("stats statistics summary info", ("inspect", "score", "doctor")),
    ("convert import transform", ("prepare", "`coord-data prepare` for annotations")),
    ("detect infer inference generate answer", ("predict", "`coord-detect predict MODEL IMAGES --out DIR`")),
    (
        "export merge_adapter",
        ("`uv run apps/exporter merge BASE ADAPTER OUT` for a model, and `predict --export` for annotations",),
    ),
    ("finetune fine_tune fit sft", ("train", "`uv run apps/trainer train -c CONFIG`")),
    ("visualize visualise show plot browse", ("view", "inspect", "demo")),
    ("serve app gui web gradio", ("demo", "`coord-detect demo MODEL`")),
    ("diff", ("compare", "`coord-eval compare`")),
    ("score metrics map", ("score", "evaluate", "`coord-eval score`")),
    ("predict", ("`coord-detect predict MODEL IMAGES --out DIR`",)),
    ("train", ("`uv run apps/trainer train -c CONFIG`",)),
    ("inspect prepare", ("`coord-data prepare`, `coord-data inspect`",)),
    ("tune sweep", ("compare", "`uv run apps/trainer compare CONFIG CONFIG`")),
)
"""Commands: words of others, and ours, the first that a program has, or a sentence."""

_NAMES = {
    "coord_eval.score(ANNOTATIONS, PREDICTIONS), whose .coco has the twelve figures": (
        "mean_average_precision MeanAveragePrecision COCOeval COCOEval CocoEvaluator evaluate coco_eval "
        "average_precision compute_map DetectionMetrics"
    ),
    "coord_eval.load_ground_truth(FILE)": "COCO load_coco",
    "coord_data.load(FILE_OR_FOLDER)": (
        "load_dataset load_annotations from_coco from_yolo from_voc read Dataset DetectionDataset"
    ),
    "coord_data.prepare(SOURCE, out=FOLDER)": "convert to_yolo to_coco",
    "coord_data.inspect(SOURCE)": "validate check stats",
    "coord_detect.Detector(PATH)": "AutoModel YOLO pipeline load_model Model",
    "coord_trainer.train(CONFIG, data={...})": "fit finetune Trainer SFTTrainer",
    "coord_eval.fuse(...) of several lists; one model's answers need no suppression": (
        "nms with_nms non_max_suppression weighted_boxes_fusion ensemble_boxes wbf"
    ),
    "coord_eval.to_supervision(...)": "to_detections Detections",
    "coord_eval.diagnose(ANNOTATIONS, PREDICTIONS)": "analyze analyse error_analysis tide",
}
_NAMED = {word: ours for ours, words in _NAMES.items() for word in words.split()}
_ROW_OF = {word: row for row in ARGUMENTS for word in row.words.split()}
_COMMAND_OF = {word: ours for words, ours in _COMMANDS for word in words.split()}


def use(ours: str) -> str:
    """Return a hint that names what does it, or says that nothing is needed; "" for "".

    Example:
        >>> use("--out"), use("nothing: all boxes count")
        ('; use --out', '; nothing is needed: all boxes count')
    """
    return (
        f"; nothing is needed{ours.removeprefix('nothing')}" if ours.startswith("nothing") else ours and f"; use {ours}"
    )


def argument_hint(word: str) -> str:
    """Return what does in a Python call what an argument of another library does, "" for words that are not known.

    Example:
        >>> argument_hint("conf"), argument_hint("colour")
        ('min_score=', '')
    """
    row = _ROW_OF.get(word)
    return row.call if row else ""


def option_hint(option: str, options: Collection[str], takes_settings: bool = False) -> str:
    """Return what does on a command line what an option of another program does, "" for what is not known.

    Args:
        option: as written: `--save-txt`
        options: the options that the command has
        takes_settings: whether it takes settings `section.key=value`

    Example:
        >>> option_hint("--conf", ["--config", "--min-score"]), option_hint("--epochs", [], takes_settings=True)
        ('--min-score', 'training.num_train_epochs=N')
    """
    row = _ROW_OF.get(option.lstrip("-").replace("-", "_").lower())
    for ours in row.line if row else ():
        first = ours.split()[0]
        is_setting = "=" in first and "." in first
        if (first in options if first.startswith("--") else takes_settings or not is_setting) and first != option:
            return ours
    return ""


def setting_hint(word: str) -> str:
    """Return the setting that does what a setting of another library does, "" if there is none.

    Example:
        >>> setting_hint("epochs"), setting_hint("imgsz")
        ('training.num_train_epochs', 'data.max_pixels')
    """
    row = _ROW_OF.get(word)
    found = [ours for ours in row.line if "=" in ours and "." in ours.split("=")[0]] if row else []
    return found[0].split("=")[0] if found else ""


def command_hint(word: str, commands: Collection[str]) -> str:
    """Return the command that does what a command of another program does, "" for what is not known.

    Example:
        >>> command_hint("val", ["train", "evaluate"]), command_hint("validate", ["prepare", "inspect"])
        ('evaluate', 'inspect')
    """
    for ours in _COMMAND_OF.get(word.replace("-", "_").lower(), ()):
        if ours in commands or " " in ours:
            return ours
    return ""


def missing_name(module: str, name: str, has: Iterable[str] = ()) -> AttributeError:
    """Return the error for a name that a module does not have, with what does it, or the nearest name that it has.

    Example:
        >>> print(missing_name("coord_eval", "COCO"))
        module 'coord_eval' has no attribute 'COCO'; use coord_eval.load_ground_truth(FILE)
    """
    from difflib import get_close_matches

    ours = _NAMED.get(name, "")
    near = [] if ours or name.startswith("_") else get_close_matches(name, list(has), n=1)
    hint = use(ours) if ours else f"; did you mean {near[0]}?" if near else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)
