"""Every model family, tiny and random: it is planned, trained with LoRA and offsets, asked and scored."""

import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest
import torch
import transformers
from naive_varlen import naive_varlen_attn
from PIL import Image
from tiny_families import SYSTEM, build
from tiny_run import read_lines, tiny_config

from coord_codec import InputError
from coord_detect.families.family import Family
from coord_detect.families.registry import FAMILIES, family_of, register_family
from coord_trainer.config.run_config import check_run_config, load_run_config

pytest.importorskip("swift")

KINDS = list(FAMILIES)
FEW = pytest.mark.drawn(2, "kind")
"""Facts of a family's record are tested of all families in each run, the rest of those that are drawn."""


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
        config = run_config(bases(kind), data=data, **({"evaluation": {"images": "none"}} if packing else {}))
        return folder, train_and_score(config, folder)

    return of


def losses(folder):
    return [line["train_total_loss"] for line in read_lines(folder) if "train_total_loss" in line]


@FEW
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_family_trains_answers_and_is_scored(kind, trained):
    folder, result = trained(kind)
    assert len(losses(folder)) == 2 and min(losses(folder)) > 0
    answers = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    assert len(answers) == result.evaluation.counts["images"] == 2
    for answer in answers:  # the grammar allows an answer without objects
        assert ("<|coord_" in answer["text"]) == (answer["text"] != "") == bool(answer["coord_logprobs"])
    assert 0 <= result.evaluation["AP"] <= 1


@FEW
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_family_has_the_same_answers_where_tokens_are_drafted(kind, trained, tmp_path):
    from coord_trainer.data.load import load_scored
    from coord_trainer.evaluation.decodings import predict_images

    folder, _ = trained(kind)
    config = load_run_config(folder / "config.yaml", ["evaluation.speed=exact"], trains=False)
    checkpoint = folder / "checkpoints" / "checkpoint-2"
    images = load_scored(config, tmp_path)
    if reason := FAMILIES[kind].cannot.get("speed"):
        with pytest.raises(InputError, match=re.escape(reason)):
            predict_images(config, checkpoint, images, tmp_path / "p.jsonl")
        return
    predict_images(config, checkpoint, images, tmp_path / "p.jsonl")
    found, plain = (path.read_text().splitlines() for path in (tmp_path / "p.jsonl", folder / "predictions.jsonl"))
    assert [json.loads(line)["text"] for line in found] == [json.loads(line)["text"] for line in plain]


@FEW
@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "packing" not in FAMILIES[kind].cannot])
def test_packed_rows_have_the_losses_of_padded_ones(kind, trained):
    assert losses(trained(kind, packing=True)[0]) == pytest.approx(losses(trained(kind)[0]), rel=2e-5)


@FEW
@pytest.mark.slow
@pytest.mark.parametrize("attention", ["varlen", "sdpa", "eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_sample_has_the_logits_that_it_has_alone(kind, attention, bases, tmp_path, monkeypatch):
    """In padded and packed rows, with images of several sizes; varlen is the kernel of a GPU, written out."""
    from coord_detect.model import attention as by_sample
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.swift.open_run import open_run, sample_set

    monkeypatch.setattr(by_sample, "varlen_attn", naive_varlen_attn)
    monkeypatch.setattr(by_sample, "_runs_varlen", lambda query: attention == "varlen")
    images, _ = draw_sets(tiny_config(data={"shapes": {"train": 3, "heldout": 1}}), tmp_path / "data")
    monkeypatch.setattr(type(images), "image", sized(type(images).image))
    for packing in (False, True)[: 1 if "packing" in FAMILIES[kind].cannot else 2]:
        model = {"path": str(bases(kind)), "attention": attention.replace("varlen", "sdpa")}
        config = run_config(bases(kind), data={"packing": packing}, model=model)
        run = open_run(config, tmp_path, str(bases(kind)), evaluates=False)
        chosen = sample_set(config, run, images)
        rows = [[chosen[i]] for i in range(3)]
        together, *alone = [run.collate(given) for given in ([row[0] for row in rows], *rows)]
        run.model.eval()
        found, used = logits_of(run.model, together), together["labels"] != -100
        assert "attention_mask" not in together or not packing
        run.model.set_attn_implementation("eager")
        expected = torch.cat([logits_of(run.model, one)[one["labels"] != -100] for one in alone])
        if packing:  # the first token of a sample has no label
            used = torch.cat([one["labels"] != -100 for one in alone], dim=1)
        torch.testing.assert_close(found[used], expected, rtol=0, atol=5e-5)


def sized(own):
    return lambda images, index: own(images, index).resize((96 + 32 * index, 96))


def logits_of(model, batch):
    """Logits of a batch as the trainer gives it to the model."""
    dropped = {"labels", "coord_slots", "coord_samples", "coord_sources", "text_position_ids", "loss_scale", "channel"}
    with torch.no_grad():
        return model(**{k: v for k, v in batch.items() if k not in dropped}, use_cache=False).logits


@pytest.fixture(scope="module")
def plain(bases, tmp_path_factory):
    """A function that opens a family once, without weights; the run is not to be changed."""
    return cache(lambda kind: opened(bases(kind), tmp_path_factory.mktemp(kind)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_only_the_answer_is_supervised(kind, plain):
    run = plain(kind)
    messages = [{"role": "user", "content": "<image>find"}, {"role": "assistant", "content": "a square"}]
    labels = run.encode({"messages": messages, "images": [Image.new("RGB", (64, 64))]})["labels"]
    learnt = run.processor.tokenizer.decode([label for label in labels if label != -100])
    assert learnt.rstrip("\n") == "a square" + FAMILIES[kind].answer_end


@FEW
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_family_is_planned(kind, bases, capsys):
    from coord_trainer.preview import dry_run

    family, config = FAMILIES[kind], run_config(bases(kind))
    rates = {"vit_lr": 1e-5, "aligner_lr": 2e-5, "learning_rate": 3e-5}
    if "merger" in family.cannot:
        with pytest.raises(InputError, match=r"training\.aligner_lr: the merger of"):
            dry_run(config.model_copy(update={"training": config.training | rates}))
        del rates["aligner_lr"]
    figures = dry_run(config.model_copy(update={"training": config.training | rates}))
    groups = {lr: [g["example"] for g in figures["groups"] if g["lr"] == lr] for lr in rates.values()}
    assert all(f".{family.vision_tower}." in name and family.merger not in name for name in groups[1e-5])
    assert all(any(f".{family.merger}." in name for name in names) for lr, names in groups.items() if lr == 2e-5)
    assert any(f".{family.language_model}." in name for name in groups[3e-5]) and all(groups.values())
    told = capsys.readouterr().out
    assert figures["parameters"]["offsets"] > 0
    assert figures["peak"] > figures["weights"] > 0 and "cannot be simulated" not in told


@pytest.mark.slow
def test_memory_of_a_family_that_cannot_be_simulated_is_left_out_of_the_plan(bases, monkeypatch, capsys):
    from coord_trainer.preview import dry_run

    model = transformers.models.qwen3_vl.modeling_qwen3_vl.Qwen3VLTextModel
    monkeypatch.setattr(model, "forward", lambda self, **inputs: inputs["inputs_embeds"].max().item())
    assert "peak" not in dry_run(run_config(bases("qwen3_vl")))
    assert "memory: the step of Qwen3-VL cannot be simulated (" in capsys.readouterr().out


@pytest.mark.slow
def test_samples_that_are_too_long_are_refused_by_the_plan_as_by_the_run(bases):
    from coord_trainer.preview import dry_run

    config = run_config(bases("qwen3_vl"))
    with pytest.raises(InputError, match=r"training\.max_length"):
        dry_run(config.model_copy(update={"training": config.training | {"max_length": 45}}))


def opened(base, folder, **sections):
    from coord_trainer.swift.open_run import open_run

    return open_run(run_config(base, **sections), folder, str(base), evaluates=False, without_weights=True)


@pytest.mark.slow
def test_rate_of_a_part_that_is_not_trained_is_refused(bases):
    from coord_trainer.preview import dry_run

    config = run_config(bases("qwen2_vl"))
    training = config.training | {"freeze_vit": True, "vit_lr": 1e-5}
    with pytest.raises(InputError, match=r"training.vit_lr is 1e-05, but no trained parameter lies in model.visual"):
        dry_run(config.model_copy(update={"training": training}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_names_of_parts_are_those_of_the_model_and_of_swift(kind, bases, plain):
    from swift.model import MODEL_MAPPING

    from coord_trainer.swift.trainer import idle_vision

    family, model = family_of(bases(kind)), plain(kind).model
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


@pytest.mark.slow
@FEW
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
        sample = run.encode({"messages": [prompt, {"role": "assistant", "content": "a"}], "images": images})
        ids = sample["input_ids"]
        assert len(ids) == lengths.around + lengths.image(*size) + lengths.answer("a")
        pixels = sample["pixel_values"].numel() / 3
        if "image_grid_thw" in sample:
            pixels = int(sample["image_grid_thw"].prod()) * FAMILIES[kind].patch_size ** 2
        side = FAMILIES[kind].patch_size * FAMILIES[kind].merge_size
        area, tokens = pixels / side**2, ids.count(image_token)
        # A family may close each row of patches by one more token.
        assert tokens == area or (tokens > area and area % (tokens - area) == 0)
        assert not limited or max(size) >= 4 * min(size) or 0 < pixels <= 64 * 64


@FEW
@pytest.mark.parametrize("kind", KINDS)
def test_processor_receives_upright_images_with_sides_of_the_familys_ratio(kind, bases, plain, tmp_path):
    from coord_trainer.data.load import load_training
    from coord_trainer.inspection.shown import image_of_pixels
    from coord_trainer.swift.open_run import sample_set

    upright, exif = Image.new("RGB", (96, 64), "blue"), Image.Exif()
    upright.paste("red", (0, 0, 48, 64))
    upright.save(tmp_path / "upright.png")
    exif[0x0112] = 6  # the stored image is turned clockwise to be upright
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    Image.new("RGB", (16 * 201, 16)).save(tmp_path / "wide.png")
    boxes = [{"desc": "red", "bbox": [0, 0, 0.5, 1]}]
    rows = [{"image": f"{name}.png", "objects": boxes} for name in ("upright", "turned", "wide")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = {"images": "none"}
    config = run_config(bases(kind), data={"annotations": str(tmp_path / "a.jsonl")}, evaluation=asked)
    run, mixture = plain(kind), load_training(config)
    samples = sample_set(config, run, mixture)
    assert len(samples) == (3 if FAMILIES[kind].max_side_ratio is None else 2)
    assert samples[0]["pixel_values"].equal(samples[1]["pixel_values"])
    assert samples[0]["input_ids"] == samples[1]["input_ids"]
    seen = image_of_pixels(samples[1]["pixel_values"], samples[1].get("image_grid_thw"), run.processor.image_processor)
    left, right = (seen.getpixel((int(x * seen.width), seen.height // 2)) for x in (0.25, 0.75))
    assert left[0] > 250 > 5 > left[2] and right[2] > 250 > 5 > right[0]
    messages = [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": "a"}]
    with nullcontext() if len(samples) == 3 else pytest.raises(ValueError, match="aspect ratio must be smaller"):
        run.encode({"messages": messages, "images": [Image.open(tmp_path / "wide.png")]})


def test_ratio_of_sides_that_the_processor_does_not_take_is_refused(bases, tmp_path):
    from coord_trainer.swift.open_run import _refuse_impossible

    with pytest.raises(InputError, match=r"data.max_side_ratio: .* Qwen3-VL takes no more than 200, found 300"):
        opened(bases("qwen3_vl"), tmp_path, data={"max_side_ratio": 300})
    _refuse_impossible(run_config(bases("qwen3_vl"), data={"max_side_ratio": 200}), FAMILIES["qwen3_vl"])


def test_image_limits_are_refused_for_a_family_with_tiles(bases, tmp_path):
    with pytest.raises(InputError, match=r"data\.max_pixels: InternVL3 has no limits of the image size"):
        opened(bases("internvl"), tmp_path, data={"max_pixels": 64 * 64})


@pytest.mark.parametrize(("kind", "speed", "told"), [("qwen3_5", "exact", "is exact but the model is a Qwen3.5")])
def test_speeds_that_answers_cannot_have_are_refused_before_training(kind, speed, told, bases, tmp_path):
    with pytest.raises(InputError, match=f"evaluation.speed {re.escape(told)}"):
        opened(bases(kind), tmp_path, evaluation={"speed": speed})


@pytest.mark.slow
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


@pytest.mark.slow
def test_checkpoint_that_is_taught_another_end_than_its_chat_template_writes_is_refused(bases, tmp_path):
    end = "{{ '<|endoftext|>' if message.role == 'assistant' else '<|im_end|>' }}\n{% endfor %}"
    base = edited(bases("qwen3_vl"), tmp_path / "base", lambda text: text.replace("<|im_end|>\n{% endfor %}", end))
    with pytest.raises(InputError, match=r"would end an answer with '<\|im_end\|>.*generated until '<\|endoftext\|>'"):
        opened(base, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("written", ["", "{% else %}\n"])
def test_answer_ends_as_the_record_says_where_the_chat_template_writes_none_after_it(written, bases, tmp_path):
    end = "{% if message.role != 'assistant' %}<|im_end|>\n" + written + "{% endif %}{% endfor %}"
    base = edited(bases("qwen3_vl"), tmp_path / "base", lambda text: text.replace("<|im_end|>\n{% endfor %}", end))
    settings = json.loads((base / "tokenizer_config.json").read_text())
    (base / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "<|endoftext|>"}))
    assert opened(base, tmp_path).processor.tokenizer.eos_token == FAMILIES["qwen3_vl"].answer_end


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen3_vl", "gemma3"])
def test_sample_that_is_cut_off_has_a_token_type_for_each_token(kind, bases, tmp_path):
    training = {
        "tuner_type": "lora",
        "target_modules": ["all-linear"],
        "max_length": 40,
        "truncation_strategy": "right",
    }
    run, name = opened(bases(kind), tmp_path, training=training), FAMILIES[kind].token_types
    messages = [{"role": "user", "content": "<image>" + 40 * "find "}, {"role": "assistant", "content": "a"}]
    sample = run.encode({"messages": messages, "images": [Image.new("RGB", (64, 64))]})
    image_token = run.processor.tokenizer.convert_tokens_to_ids(FAMILIES[kind].image_token)
    assert sample[name].tolist() == [int(token == image_token) for token in sample["input_ids"]]
    assert len(sample["input_ids"]) == 40 and sum(sample[name]) > 0


@pytest.mark.slow
def test_default_system_turn_of_the_chat_template_is_refused_unless_it_is_trained(bases, tmp_path):
    base = edited(bases("qwen3_vl"), tmp_path / "base", lambda template: SYSTEM + template)
    with pytest.raises(InputError) as refused:
        opened(base, tmp_path)
    told = str(refused.value)
    assert "from token 1 on: training has 'user" in told and "its chat template has 'system" in told
    assert "training.system" in told
    settings = run_config(base).training
    assert opened(base, tmp_path, training=settings | {"system": "You are a helpful assistant."}).family.name


@pytest.mark.slow
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


@pytest.mark.slow
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
    check_run_config({"plugins": [str(tmp_path / "own.py")]}, "test", trains=False)
    assert opened(base, tmp_path).family.name == "Own"


def test_second_record_of_a_model_type_is_refused():
    register_family(FAMILIES["qwen3_vl"])
    with pytest.raises(ValueError, match="model_type 'qwen3_vl': there is one of this name already"):
        register_family(Family("Mine", "qwen3_vl", swift_model="qwen3_vl", swift_template="qwen3_vl"))


def test_record_with_an_unknown_refusal_is_refused():
    with pytest.raises(ValueError, match="Mine: cannot: expected merger or packing or pixels or speed, found 'video'"):
        Family("Mine", "mine", swift_model="qwen3_vl", swift_template="qwen3_vl", cannot={"video": "no"})


@pytest.mark.parametrize("key", ["swift_model", "swift_template"])
def test_name_that_swift_does_not_have_is_refused(key, bases, tmp_path, monkeypatch):
    names = {"swift_model": "qwen3_vl", "swift_template": "qwen3_vl"} | {key: "nothing"}
    monkeypatch.setitem(FAMILIES, "mine", Family("Mine", "mine", **names))
    with pytest.raises(InputError, match=f"family Mine: {key}: the installed ms-swift has no 'nothing'"):
        opened(bases("qwen3_vl"), tmp_path)


@pytest.mark.slow
@FEW
@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_every_family_are_judged_alike_alone_and_in_a_batch(bases, kind):
    from coord_codec import Instance
    from coord_detect.model.checkpoint import open_checkpoint
    from coord_trainer.review.forcing import Forcing

    config = tiny_config()
    checkpoint = open_checkpoint(bases(kind), config)
    images = [Image.effect_noise(size, 80).convert("RGB") for size in ((96, 64), (48, 48))]
    boxes = [
        {"desc": "red circle", "bbox": [0.1, 0.2, 0.5, 0.6]},
        {"desc": "blue square", "bbox": [0.5, 0.6, 0.9, 0.9]},
    ]
    instances = [Instance(image="a", objects=boxes), Instance(image="b", objects=boxes[:1])]
    forcing = Forcing(checkpoint, config, frozenset({"red circle", "blue square"}))
    together = forcing(images, instances, [1, 2])
    for place, answer in enumerate(together):
        (single,) = forcing(images[place : place + 1], instances[place : place + 1], [place + 1])
        for label, other in zip(answer.labels, single.labels, strict=True):
            assert label.coord_logprobs == pytest.approx(other.coord_logprobs, abs=1e-3)
            assert label.name_logprobs == pytest.approx(other.name_logprobs, abs=1e-3)
        assert answer.end_logprob == pytest.approx(single.end_logprob, abs=1e-3)
