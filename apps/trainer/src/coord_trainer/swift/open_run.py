"""Opens a run in ms-swift: loads model, processor and template, encodes batches, and trains."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from torch.utils.data import Dataset
from transformers import TrainerCallback

from coord_adapter import MODULE_NAME, check_peft_config, install_coord_offset_adapter, weights_digest
from coord_codec import WILDCARD_TOKEN, CoordVocab, InputError
from coord_data.reading.image_set import ImageSet
from coord_detect.console import say, world_size
from coord_detect.families.family import Family
from coord_detect.families.registry import family_of
from coord_detect.model.attention import attend_by_sample
from coord_detect.model.card import MOST_NAMES, ModelCard, system_text
from coord_detect.model.checkpoint import set_pixels
from coord_detect.model.patch_embedding import multiply_patches
from coord_detect.model.prompt import check_prompt, end_answers_as_asked, prompt_settings, prompt_text
from coord_detect.speed.of_checkpoint import check_speed
from coord_losses import CoordObjective
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import DataSection
from coord_trainer.config.swift_arguments import trains_in_full
from coord_trainer.console import set_single_rank_environment, swift_log
from coord_trainer.data.batches import collate_samples
from coord_trainer.data.lengths import Lengths
from coord_trainer.data.mixture import Mixture
from coord_trainer.data.samples import Samples
from coord_trainer.data.targets import TargetWriter
from coord_trainer.evaluation.during_training import AnswerSchedule
from coord_trainer.model.card import make_card
from coord_trainer.model.named_parts import check_named_parts
from coord_trainer.model.parameters import offset_ids, refuse_random_head, report_quantised


@dataclass(frozen=True)
class Trained:
    """The result of training: last checkpoint, if any, and samples seen by source.

    Optimizer steps and samples before a resume are included.
    """

    checkpoint: Path | None
    steps: int
    seen: tuple[int, ...] = ()


@dataclass(frozen=True)
class OpenRun:
    """A loaded model with its processor and template, ready to encode samples and to train.

    `folder` is the one that swift writes to; `pipeline` is ms-swift's, used only within this folder.
    """

    config: RunConfig
    family: Family
    folder: Path
    vocab: CoordVocab | None
    markers: tuple[int, ...] | None
    pipeline: Any = field(repr=False)

    @property
    def model(self) -> Any:
        """The model, with its adapter once training has begun."""
        return self.pipeline.model

    @property
    def processor(self) -> Any:
        """The Hugging Face processor of the checkpoint."""
        return self.pipeline.processor

    @property
    def encode(self) -> Callable[..., dict[str, Any]]:
        """The function that encodes a conversation with images as ids, labels and pixels."""
        encode: Callable[..., dict[str, Any]] = self.pipeline.template.encode
        return encode

    @property
    def batch_size(self) -> int:
        """The number of samples of a micro-batch on each rank."""
        return int(self.pipeline.args.per_device_train_batch_size)

    @property
    def samples_per_step(self) -> int:
        """The number of samples of an optimizer step on all ranks."""
        return self.batch_size * int(self.pipeline.args.gradient_accumulation_steps) * world_size()

    def steps_for(self, samples: int) -> int:
        """Return the number of optimizer steps of training on a number of samples in an epoch."""
        arguments = self.pipeline.args
        if (arguments.max_steps or 0) > 0:
            return int(arguments.max_steps)
        batches = math.ceil(samples / (self.batch_size * world_size()))
        per_epoch = max(1, math.ceil(batches / int(arguments.gradient_accumulation_steps)))
        return math.ceil(float(arguments.num_train_epochs) * per_epoch)

    def card(self, mixture: Mixture) -> ModelCard:
        """Return how answers are to be generated with the checkpoints of a run that was trained on `mixture`."""
        fingerprint = self.vocab.fingerprint(markers=self.markers) if self.vocab is not None else None
        processor, system = self.processor, system_text(self.config)
        rendered = prompt_text(processor, system, self.config.data.prompt)
        is_default = rendered == prompt_text(processor, system, self.config.data.prompt, settings={})
        settings = {} if is_default else prompt_settings(processor.chat_template)
        card = make_card(self.config, dict(processor.image_processor.size), fingerprint, rendered, settings)
        arguments = self.pipeline.args
        # The labels by which class ids count: categories in their order, else sorted words.
        labels = (name for images in mixture.image_sets for name in images.classes or sorted(images.words))
        names = tuple(dict.fromkeys(labels))
        return card.model_copy(
            update={
                "base": weights_digest(arguments.model) if arguments.tuner_type == "lora" else None,
                "image_processor": type(processor.image_processor).__name__,
                "names": names if len(names) <= MOST_NAMES else (),
            }
        )

    @property
    def longest_sample(self) -> int:
        """The most tokens of a sample; longer ones are cut off or refused, see `truncation`."""
        return int(self.pipeline.template.max_length)

    @property
    def truncation(self) -> str | None:
        """The side on which longer samples are cut off; None if they are refused."""
        strategy = self.pipeline.args.truncation_strategy
        return strategy if strategy in ("left", "right") else None

    def measure(self) -> Lengths:
        """Return a `Lengths`, which computes the length of a sample without encoding it.

        Raises:
            InputError: even the prompt with a small image is longer than the limit.
        """
        processor, tokenizer = self.processor, self.processor.tokenizer
        size = 64
        answer = "a"

        def of_image(width: int, height: int) -> int:
            return int(processor._get_num_multimodal_tokens(image_sizes=[(height, width)]).num_image_tokens[0])

        def of_answer(text: str) -> int:
            return len(tokenizer(text, add_special_tokens=False)["input_ids"])

        messages = [
            {"role": "user", "content": "<image>" + self.config.data.prompt},
            {"role": "assistant", "content": answer},
        ]
        try:
            small = self.encode({"messages": messages, "images": [Image.new("RGB", (size, size))]})
        except ValueError as error:
            raise InputError(
                f"training.max_length: even the prompt with a small image does not fit ({error})"
            ) from None
        return Lengths(len(small["input_ids"]) - of_image(size, size) - of_answer(answer), of_answer, of_image)

    def length(self, conversation: dict[str, Any]) -> int:
        """Return the number of tokens of messages with images, ignoring `training.max_length`."""
        with self.any_length():
            return len(self.encode(conversation)["input_ids"])

    @contextmanager
    def any_length(self) -> Iterator[None]:
        """Encode samples in full inside this context, ignoring `training.max_length`."""
        template, limit = self.pipeline.template, self.pipeline.template.max_length
        template.max_length = None
        try:
            yield
        finally:
            template.max_length = limit

    def collate(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch of `samples` as a training step receives it, with its object slots."""
        collate = self.pipeline.template.data_collator
        return collate_samples(samples, collate, self.vocab, self.config.data.packing)

    def plan_optimizer(self) -> tuple[Any, Any]:
        """Return the model with its adapter and the optimizer as training would create them."""
        from coord_trainer.swift.pipeline import plan_optimizer

        return plan_optimizer(self.pipeline, self.config.custom.coord_offset)

    def train(
        self,
        samples: Samples,
        scored: Dataset[Any] | None,
        *,
        callbacks: Sequence[TrainerCallback] = (),
        resume_from: Path | None = None,
        workers: int | None = None,
        answers: AnswerSchedule | None = None,
    ) -> Trained:
        """Train on `samples`, with evaluation losses on `scored`, if any, as configured in `training:`.

        `callbacks` are in addition to swift's own; `workers`, processes that encode samples, replace those of
        `training:`.
        """
        config, pipeline = self.config, self.pipeline
        with swift_log(self.folder / "swift.log") as take_over_loggers:
            from transformers.integrations.deepspeed import unset_hf_deepspeed_config

            from coord_trainer.swift.trainer import TrainingParts

            take_over_loggers()
            arguments = pipeline.args.training_args
            if workers is not None:
                arguments.dataloader_num_workers = workers
                # Workers have to restart to use the samples of the next epoch; else keeping them saves time.
                arguments.dataloader_persistent_workers = not samples.mixture.varies
            arguments.resume_from_checkpoint = str(resume_from) if resume_from is not None else None
            pipeline.datasets = (samples, scored)
            pipeline.parts = parts = TrainingParts(
                objective=CoordObjective(config.custom.objective, self.vocab),
                offset=config.custom.coord_offset,
                fused=config.model.fused_head,
                packing=config.data.packing,
                gradient_norms=config.run.gradient_norms,
                vision=(self.family.vision_tower, self.family.merger),
                callbacks=tuple(callbacks),
                card=self.card(samples.mixture),
                answers=answers,
                sources=len(samples.mixture.sources),
            )
            finished = pipeline.main()
            unset_hf_deepspeed_config()  # models that are loaded later must not be sharded
        last = finished.get("last_model_checkpoint")
        steps = finished["global_step"]
        return Trained(Path(last) if last else None, steps, tuple(parts.seen))


def open_run(config: RunConfig, folder: Path, base: str, evaluates: bool, without_weights: bool = False) -> OpenRun:
    """Import swift (slow), register our template and model entry, and load the checkpoint `base` through them.

    `base` is a folder or a hub id; `without_weights` loads the model on the meta device.

    Raises:
        InputError: the checkpoint cannot be downloaded, is of no known family, requires code of its own or has no
            usable coordinate tokens, a setting names a part that the model does not have, or the family cannot do what
            is asked for.
    """
    # Load: swift is imported here, since it takes many seconds.
    with swift_log(folder / "swift.log") as take_over_loggers:
        from coord_trainer.swift.pipeline import open_pipeline, swift_arguments
        from coord_trainer.swift.template import apply_coord_template_adapter, fetch_checkpoint, refuse_remote_code

        take_over_loggers()
        if config.training.get("deepspeed") and not without_weights:
            set_single_rank_environment()
        use_hf = config.training.get("use_hf")
        stored = Path(base) if Path(base).is_dir() else fetch_checkpoint(base, use_hf, without_weights)
        refuse_remote_code(stored)
        family = family_of(stored)
        _refuse_impossible(config, family)
        tokens = config.custom.coord_tokens
        apply_coord_template_adapter(coord_tokens=tokens.enabled, skip_bbox_norm=tokens.skip_bbox_norm)
        # swift keeps the first value for the life of the process, but every run has its own folder.
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tensorboard")
        arguments = swift_arguments(config, folder, str(stored), family.entry, evaluates)
        pipeline = open_pipeline(arguments, without_weights)

    # Model: its forward pass computes the same, faster.
    check_named_parts(config.training, pipeline.model)
    _check_parts(family, pipeline.model)
    refuse_random_head(pipeline.model, stored)
    if config.training.get("quant_bits") and not without_weights:
        report_quantised(pipeline.model)
    multiply_patches(pipeline.model)
    attend_by_sample(pipeline.model, family.vision_tower, config.data.packing)

    # Processor: limits of the image size, the end of an answer, coordinate tokens and markers.
    set_pixels(pipeline.processor, config.data)
    end_answers_as_asked(pipeline.processor, family.answer_end)
    tokenizer = pipeline.processor.tokenizer
    vocab, markers = _vocab(tokenizer, config, base), config.data.marker_ids(tokenizer)
    if config.custom.coord_offset.enabled:
        assert vocab is not None  # the offsets are of its rows
        _install_offsets(config, family, pipeline, vocab, markers)
    opened = OpenRun(config, family, folder, vocab, markers, pipeline)

    # Prompt: training shows the model what it will be asked.
    with opened.any_length():
        note = check_prompt(opened.encode, pipeline.processor, system_text(config), config.data.prompt)
    if note is not None:
        say(note)
    return opened


def sample_set(config: RunConfig, opened: OpenRun, images: ImageSet | Mixture, augments: bool = False) -> Samples:
    """Return the torch Dataset of a mixture, or of one image set, encoded by `opened`; `augments` for training."""
    mixture = Mixture.of_one(images, config.data)
    writers = [
        target_writer(config, opened, source.data, source.images) if source.images is not None else None
        for source in mixture.sources
    ]
    return Samples(mixture, opened.encode, writers, opened.markers, augments)


def target_writer(config: RunConfig, opened: OpenRun, data: DataSection, images: ImageSet) -> TargetWriter:
    """Return the writer of the targets of an image set, with the settings of its source."""
    return TargetWriter(data, config.custom.coord_tokens.enabled, config.run.seed, opened.vocab, images.classes)


def _vocab(tokenizer: Any, config: RunConfig, base: str) -> CoordVocab | None:
    try:
        return CoordVocab.from_tokenizer(tokenizer)
    except ValueError as error:
        if not config.custom.coord_tokens.enabled:
            return None
        raise InputError(
            f"{base}: custom.coord_tokens.enabled is true but the tokenizer has no usable coordinate tokens: {error}"
        ) from None


def _refuse_impossible(config: RunConfig, family: Family) -> None:
    """Raise `InputError` if the run needs what the model family cannot do."""
    if config.data.packing and (reason := family.cannot.get("packing")):
        raise InputError(f"data.packing: {family.name} cannot be trained on packed rows: {reason}")
    stated, most = config.data.max_side_ratio, family.max_side_ratio
    if "max_side_ratio" in config.data.model_fields_set and most is not None and (stated is None or stated > most):
        raise InputError(
            f"data.max_side_ratio: the image processor of {family.name} takes no more than {most:g}, found {stated}"
        )
    for name in ("min_pixels", "max_pixels"):
        if getattr(config.data, name) is not None and (reason := family.cannot.get("pixels")):
            raise InputError(f"data.{name}: {family.name} has no limits of the image size: {reason}; leave it out")
    by_lora = not trains_in_full(config) and config.training.get("aligner_lr") is not None
    if by_lora and (reason := family.cannot.get("merger")):
        raise InputError(f"training.aligner_lr: the merger of {family.name} is not trained by LoRA: {reason}")
    check_speed(config, family)


def _check_parts(family: Family, model: Any) -> None:
    """Raise `InputError` if the model has no part of a name that the family's record states."""
    modules = dict(model.named_modules())
    for part in ("vision_tower", "merger", "language_model", "head"):
        name = getattr(family, part)
        if name not in modules:
            raise InputError(
                f"the record of the model family {family.name}: {part}: {type(model).__name__} has no module {name!r}"
                "; use a name that its named_modules() list"
            )


def _install_offsets(
    config: RunConfig, family: Family, pipeline: Any, vocab: CoordVocab, markers: tuple[int, ...] | None
) -> None:
    """Install the offset tables on the loaded model and add them to the modules that swift saves."""
    arguments, settings = pipeline.args, config.custom.coord_offset
    rows = pipeline.model.get_input_embeddings().num_embeddings
    wildcard = pipeline.processor.tokenizer.get_vocab().get(WILDCARD_TOKEN)
    ids = offset_ids(config, vocab, markers, rows, family.native_markers, wildcard)
    peft_settings = {name: getattr(arguments, name) for name in ("modules_to_save", "target_modules", "use_dora")}
    try:
        check_peft_config(peft_settings, use_liger_kernel=bool(arguments.use_liger_kernel))
    except ValueError as error:
        raise InputError(f"custom.coord_offset.enabled is true, but {error}") from None
    install_coord_offset_adapter(
        pipeline.model,
        ids,
        tie_head=settings.tie_head,
        dtype=settings.dtype,
        fingerprint=vocab.fingerprint(markers=markers),
    )
    arguments.modules_to_save = [*arguments.modules_to_save, MODULE_NAME]
