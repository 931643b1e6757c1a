"""Every model family, tiny and random: it is planned, trained with LoRA and offsets, asked and scored."""

import json
import re
import shutil
from dataclasses import replace
from functools import cache

import pytest
from PIL import Image
from tiny_families import SYSTEM, build
from tiny_run import read_lines, tiny_config

from coord_codec import InputError
from coord_trainer.config.run_config import load_run_config
from coord_trainer.families.family import Family
from coord_trainer.families.table import FAMILIES, family_of, register_family

pytest.importorskip("swift")

KINDS = list(FAMILIES)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A function that returns the folder of a family's tiny checkpoint, which is not to be changed."""
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.tiny import train_tokenizer

    folder = tmp_path_factory.mktemp("families")
    config = tiny_config()
    train, _ = draw_sets(config, folder / "data")
    tokenizer = train_tokenizer([config.data.prompt, *sorted(train.words)])

    def of(kind):
        if not (folder / kind).exists():
            build(kind, tokenizer, config.model.tiny, folder / kind)
        return folder / kind

    return of


def run_config(base, **sections):
    """Two steps of LoRA and offsets on generated shapes."""
    training = {"tuner_type": "lora", "target_modules": ["all-linear"], "max_steps": 2, "learning_rate": 0.05}
    # Packed and padded rows have other random numbers, and Adam would make a full step of a rounding error.
    training |= {"lora_dropout": 0.0, "optim": "sgd"}
    return tiny_config(
        **{
            "model": {"path": str(base)},
            "data": {"shapes": {"train": 4, "heldout": 2}},
            "custom": {"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
            "training": training | {"per_device_train_batch_size": 2, "save_steps": 2},
            "evaluation": {"max_new_tokens": 24, "decoding": {"grammar": "markers"}},
        }
        | sections
    )


@pytest.fixture(scope="module")
def trained(bases, tmp_path_factory):
    """A function that trains a family once, with padded or packed rows: folder and result."""
    from coord_trainer.run import train_and_score

    @cache
    def of(kind, packing=False):
        folder = tmp_path_factory.mktemp(kind) / "run"
        data = {"shapes": {"train": 4, "heldout": 2}, "packing": packing}
        return folder, train_and_score(run_config(bases(kind), data=data), folder)

    return of


def losses(folder):
    return [line["train_total_loss"] for line in read_lines(folder) if "train_total_loss" in line]


@pytest.mark.parametrize("kind", KINDS)
def test_family_trains_answers_and_is_scored(kind, trained):
    folder, result = trained(kind)
    assert len(losses(folder)) == 2 and min(losses(folder)) > 0
    answers = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    assert len(answers) == result.evaluation.counts["images"] == 2
    for answer in answers:  # the grammar allows an answer without objects
        assert ("<|coord_" in answer["text"]) == (answer["text"] != "") == bool(answer["coord_logprobs"])
    assert 0 <= result.evaluation["AP"] <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_family_has_the_same_answers_where_tokens_are_drafted(kind, trained, tmp_path):
    from coord_trainer.answers.score import predict_checkpoint

    folder, _ = trained(kind)
    config = load_run_config(folder / "config.yaml", ["evaluation.speed=exact"], trains=False)
    checkpoint = folder / "checkpoints" / "checkpoint-2"
    if reason := FAMILIES[kind].cannot.get("speed"):
        with pytest.raises(InputError, match=re.escape(reason)):
            predict_checkpoint(config, checkpoint, tmp_path / "p.jsonl")
        return
    predict_checkpoint(config, checkpoint, tmp_path / "p.jsonl")
    found, plain = (path.read_text().splitlines() for path in (tmp_path / "p.jsonl", folder / "predictions.jsonl"))
    assert [json.loads(line)["text"] for line in found] == [json.loads(line)["text"] for line in plain]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "packing" not in FAMILIES[kind].cannot])
def test_packed_rows_have_the_losses_of_padded_ones(kind, trained):
    assert losses(trained(kind, packing=True)[0]) == pytest.approx(losses(trained(kind)[0]), rel=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_answer_is_supervised(kind, bases, tmp_path):
    run = opened(bases(kind), tmp_path)
    messages = [{"role": "user", "content": "<image>find"}, {"role": "assistant", "content": "a square"}]
    labels = run.encode({"messages": messages, "images": [Image.new("RGB", (64, 64))]})["labels"]
    learnt = run.processor.tokenizer.decode([label for label in labels if label != -100])
    assert learnt.rstrip("\n") == "a square<|im_end|>"


@pytest.mark.parametrize("kind", KINDS)
def test_family_is_planned(kind, bases, capsys):
    from coord_trainer.preview import dry_run

    family, config = FAMILIES[kind], run_config(bases(kind))
    rates = {"vit_lr": 1e-5, "aligner_lr": 2e-5, "learning_rate": 3e-5}
    figures = dry_run(config.model_copy(update={"training": config.training | rates}))
    groups = {lr: [g["example"] for g in figures["groups"] if g["lr"] == lr] for lr in rates.values()}
    assert all(f".{family.vision_tower}." in name and family.merger not in name for name in groups[1e-5])
    assert any(f".{family.merger}." in name for name in groups[2e-5])
    assert any(f".{family.language_model}." in name for name in groups[3e-5]) and all(groups.values())
    told = capsys.readouterr().out
    assert figures["parameters"]["offsets"] > 0
    if reason := FAMILIES[kind].cannot.get("memory"):
        assert f"memory: not simulated for {FAMILIES[kind].name}: {reason}" in told and "peak" not in figures
    else:
        assert figures["peak"] > figures["weights"] > 0


def opened(base, folder, **sections):
    from coord_trainer.swift.open_run import open_run

    return open_run(run_config(base, **sections), folder, str(base), evaluates=False, outline=True)


def test_rate_of_a_part_that_is_not_trained_is_refused(bases):
    from coord_trainer.preview import dry_run

    config = run_config(bases("qwen2_vl"))
    training = config.training | {"freeze_vit": True, "vit_lr": 1e-5}
    with pytest.raises(InputError, match=r"training.vit_lr is 1e-05, but no trained parameter lies in model.visual"):
        dry_run(config.model_copy(update={"training": training}))


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_parts_are_those_of_the_model_and_of_swift(kind, bases, tmp_path):
    from swift.model import MODEL_MAPPING

    from coord_trainer.swift.trainer import idle_vision

    family, model = family_of(bases(kind)), opened(bases(kind), tmp_path).model
    assert sum(p.numel() for p in model.get_submodule(family.merger).parameters()) > 0
    assert model.get_submodule(family.head) is model.get_output_embeddings()
    parts = MODEL_MAPPING[family.entry].model_arch
    idle = idle_vision(model, (family.vision_tower, family.merger))
    tower = [*model.get_submodule(family.vision_tower).parameters(), *model.get_submodule(family.merger).parameters()]
    assert {id(parameter) for parameter in idle} == {id(parameter) for parameter in tower}
    assert parts.vision_tower == [family.vision_tower] and family.merger in parts.aligner
    assert parts.language_model == [family.language_model, family.head]
    vision = model.get_submodule(family.vision_tower).config
    assert vision.patch_size in (family.patch_size, [family.patch_size] * 2)
    merge = getattr(vision, "spatial_merge_size", None) or 1 / model.config.downsample_ratio
    assert merge == family.merge_size


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_and_image_limits_are_those_of_the_encoded_sample(kind, bases, tmp_path):
    """Also of an image twelve times as wide as high, which the processor leaves larger: no side is under one patch."""
    limited = "pixels" not in FAMILIES[kind].cannot
    run = opened(bases(kind), tmp_path, data={"max_pixels": 64 * 64} if limited else {})
    lengths = run.measure()
    image_token = run.processor.tokenizer.convert_tokens_to_ids(FAMILIES[kind].image_token)
    for size in ((64, 64), (300, 25), (90, 160)):
        prompt = {"role": "user", "content": "<image>" + run.config.data.prompt}
        images = [Image.new("RGB", size)]
        ids = run.encode({"messages": [prompt, {"role": "assistant", "content": "a"}], "images": images})["input_ids"]
        assert len(ids) == lengths.around + lengths.image(*size) + lengths.answer("a")
        if limited and max(size) < 4 * min(size):
            side = FAMILIES[kind].patch_size * FAMILIES[kind].merge_size
            assert 0 < ids.count(image_token) * side**2 <= 64 * 64


def test_image_limits_are_refused_for_a_family_with_tiles(bases, tmp_path):
    with pytest.raises(InputError, match=r"data\.max_pixels: InternVL3 has no limits of the image size"):
        opened(bases("internvl"), tmp_path, data={"max_pixels": 64 * 64})


@pytest.mark.parametrize(
    ("kind", "speed", "told"),
    [("qwen3_5", "exact", "is exact but the model is a Qwen3.5"), ("qwen3_vl", "fast", "is fast but a model that is")],
)
def test_speeds_that_answers_cannot_have_are_refused_before_training(kind, speed, told, bases, tmp_path):
    with pytest.raises(InputError, match=f"evaluation.speed {re.escape(told)}"):
        opened(bases(kind), tmp_path, evaluation={"speed": speed})


def test_part_that_the_model_does_not_have_is_refused(bases, tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES, "qwen3_vl", replace(FAMILIES["qwen3_vl"], vision_tower="model.vision_tower"))
    with pytest.raises(InputError, match=r"vision_tower: Qwen3VL.* has no module 'model.vision_tower'"):
        opened(bases("qwen3_vl"), tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "packing" in FAMILIES[kind].cannot])
def test_packing_is_refused_for_a_family_that_cannot_pack(kind, bases, tmp_path):
    data = {"packing": True, "shapes": {"train": 4, "heldout": 2}}
    with pytest.raises(InputError, match=rf"data.packing: {FAMILIES[kind].name} cannot be trained on packed rows"):
        opened(bases(kind), tmp_path, data=data)


def edited(base, folder, change):
    """Copy a checkpoint, with another chat template."""
    shutil.copytree(base, folder)
    path = folder / "chat_template.jinja"
    path.write_text(change(path.read_text()))
    return folder


def test_default_system_turn_of_the_chat_template_is_refused_unless_it_is_trained(bases, tmp_path):
    base = edited(bases("qwen3_vl"), tmp_path / "base", lambda template: SYSTEM + template)
    with pytest.raises(InputError) as refused:
        opened(base, tmp_path)
    told = str(refused.value)
    assert "from token 1 on: training has 'user" in told and "its chat template has 'system" in told
    assert "training.system" in told
    settings = run_config(base).training
    assert opened(base, tmp_path, training=settings | {"system": "You are a helpful assistant."}).family.name


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("qwen3_5", lambda template: template.replace("<think>\n\n</think>\n\n", "")),
        ("qwen3_vl", lambda template: template.replace("<|vision_start|>", "Picture 1: <|vision_start|>")),
        ("qwen3_vl", lambda template: template + "{% if add_generation_prompt %}Sure: {% endif %}"),
        ("qwen2_5_vl", lambda template: template.removeprefix(SYSTEM)),
    ],
    ids=["thought", "number of the image", "longer", "no system turn"],
)
def test_chat_template_that_asks_otherwise_is_refused(kind, change, bases, tmp_path):
    base = edited(bases(kind), tmp_path / "base", change)
    with pytest.raises(InputError, match="trained with another prompt than its chat template asks with"):
        opened(base, tmp_path)


def test_family_of_a_plugin_file_is_opened(bases, tmp_path, monkeypatch):
    base = bases("qwen2_vl")
    monkeypatch.delitem(FAMILIES, "qwen2_vl")
    with pytest.raises(InputError, match="found 'qwen2_vl'"):
        opened(base, tmp_path)
    (tmp_path / "own.py").write_text(
        "from coord_trainer import Family, register_family\n"
        "register_family(Family('Own', 'qwen2_vl', swift_model='qwen2_vl', swift_template='qwen2_vl',\n"
        "    patch_size=14, system='You are a helpful assistant.'))\n"
    )
    custom = {"coord_soft_ce_w1": {"enabled": True}, "coord_objective": {"plugins": [str(tmp_path / "own.py")]}}
    assert opened(base, tmp_path, custom=custom).family.name == "Own"


def test_second_record_of_a_model_type_is_refused():
    register_family(FAMILIES["qwen3_vl"])
    with pytest.raises(ValueError, match="'qwen3_vl' is registered already, for Qwen3-VL"):
        register_family(Family("Mine", "qwen3_vl", swift_model="qwen3_vl", swift_template="qwen3_vl"))


def test_record_with_an_unknown_refusal_is_refused():
    with pytest.raises(ValueError, match="Mine: cannot: expected memory or packing or pixels or speed, found 'video'"):
        Family("Mine", "mine", swift_model="qwen3_vl", swift_template="qwen3_vl", cannot={"video": "no"})


@pytest.mark.parametrize("key", ["swift_model", "swift_template"])
def test_name_that_swift_does_not_have_is_refused(key, bases, tmp_path, monkeypatch):
    names = {"swift_model": "qwen3_vl", "swift_template": "qwen3_vl"} | {key: "nothing"}
    monkeypatch.setitem(FAMILIES, "mine", Family("Mine", "mine", **names))
    with pytest.raises(InputError, match=f"family Mine: {key}: the installed ms-swift has no 'nothing'"):
        opened(bases("qwen3_vl"), tmp_path)
