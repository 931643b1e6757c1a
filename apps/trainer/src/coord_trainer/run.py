"""One run from data to report, top to bottom: `train_and_score(config, folder)`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.pages import fragment, notes
from coord_data.finding import write_findings
from coord_detect.console import first_rank_first, is_first, refuse_differences, say, world_size
from coord_detect.views.registry import check_views
from coord_detect.views.view import Question
from coord_eval import Evaluation
from coord_trainer.active_run import Run
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.without_effect import settings_without_effect
from coord_trainer.console import refuse_loose_tasks
from coord_trainer.data.load import RunData, load_data, source_configs
from coord_trainer.evaluation.decodings import predict_images
from coord_trainer.evaluation.score import report_on
from coord_trainer.inspection.report import check_before_training, explain_unusable
from coord_trainer.model.model_path import check_model_path
from coord_trainer.model.tiny import base_checkpoint
from coord_trainer.requirements import refuse_other_versions
from coord_trainer.training_stage import train_model

if TYPE_CHECKING:
    from coord_detect.detection.detector import Detector


@dataclass(frozen=True)
class Result:
    """The result of a finished run: its folder, its checkpoint and, if answers were scored, their evaluation."""

    folder: Path
    checkpoint: Path
    evaluation: Evaluation | None

    @property
    def detector(self) -> Detector:
        """The detector of the checkpoint, loaded from disk."""
        from coord_detect.detection.detector import Detector

        return Detector(self.checkpoint)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: where the run is, and its scores."""
        scores = self.evaluation._repr_html_() if self.evaluation is not None else ""
        return fragment(notes([f"run folder: {self.folder}", f"checkpoint: {self.checkpoint}"])) + scores


def train_and_score(config: RunConfig, folder: Path) -> Result:
    """Train, generate answers with the checkpoint on disk, score them and write a report.

    An older run folder of that name is moved aside, or continued with `run.resume`.

    Raises:
        InputError: data or settings are faulty.
        RunError: the run could not finish.
        Interrupted: a signal stopped the run; a checkpoint is saved, and the message names the command to resume it.
    """
    with Run(config, folder) as run:
        # Check: what needs neither data nor model.
        refuse_other_versions()
        refuse_loose_tasks()
        for line in settings_without_effect(config):
            say(f"note: {line}")
        check_model_path(config.model)
        _ = config.custom.objective  # a plugin or a term that does not exist
        if config.run.threads:
            torch.set_num_threads(config.run.threads)

        # Data and folder: annotations are read before the folder is created, so that a wrong path leaves none behind.
        with first_rank_first("data"):
            data = _load(config, folder)
            if is_first():
                if data.scored is not None:
                    labels, settings = tuple(data.scored.classes or data.scored.words), config.data
                    asked = Question(settings.prompt, settings.class_prompt, labels, settings.geometry)
                    check_views(config.evaluation.views, asked)
                findings = []
                if config.data.given:  # what is generated has no faults
                    pairs = zip(source_configs(config), data.train.image_sets, strict=True)
                    for (_, alone), images in pairs:
                        findings += check_before_training(alone, images, data.heldout)
                run.open_folder(data.facts())
            data = data.without_evidence()
        digests = {f"{name} data": facts["digest"] for name, facts in data.facts().items()}
        digest = sha256(config.model_dump_json().encode()).hexdigest()[:16]
        refuse_differences({"configuration": digest, **digests})
        run.begin(data.facts())

        # Base: the checkpoint that training starts from, which the first rank builds if there is none.
        with first_rank_first("base"):
            if is_first():
                data.write(folder)
                if config.data.given:
                    write_findings(folder / "findings.json", findings)
            base = base_checkpoint(config, folder, data.train)

        # Train: every rank leaves this stage with the same checkpoint.
        training = train_model(config, folder, base, data.train, data.scored, run.interruption)
        run.record(**training.facts)
        run.stop_if_interrupted()
        if data.scored is None:
            return Result(folder, training.checkpoint, None)

        # Answer and report: with the checkpoint as it is on disk, every rank its share of the images.
        with run.scoring(training.checkpoint):
            count = predict_images(config, training.checkpoint, data.scored, folder / "predictions.jsonl")
            say(f"{counted(count, 'answer')} from {training.checkpoint.name}, loaded from disk")
            return Result(folder, training.checkpoint, report_on(config, folder, data.scored))


def _load(config: RunConfig, folder: Path) -> RunData:
    """Load the data of a run; an `InputError` if it cannot be used, or has fewer images than ranks."""
    with explain_unusable(config) if config.data.given and is_first() else nullcontext():
        data = load_data(config, folder / "data")
    images = len(data.train)
    if images < world_size():
        raise InputError(
            f"data.annotations: {counted(images, 'usable training image')} for {world_size()} ranks; each "
            "rank needs one, so add "
            "images or start fewer ranks"
        )
    return data
