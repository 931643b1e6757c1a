"""AP during training: scores the answers to some images, keeps the best checkpoint, and stops training early."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from PIL import ImageDraw
from tqdm import tqdm
from transformers import TrainerCallback

from coord_codec import CoordVocab
from coord_data.reading.image_set import ImageSet
from coord_detect.answers.records import prediction_records, sources_of
from coord_detect.answers.resumable_file import Record
from coord_detect.answers.token_limit import token_limit
from coord_detect.console import say
from coord_detect.model.attention import attend_to_whole_rows
from coord_detect.model.card import system_text
from coord_detect.model.checkpoint import LoadedCheckpoint
from coord_detect.model.checkpoints import AP, answer_scores, scores_since_best
from coord_trainer.config.run_config import RunConfig
from coord_trainer.evaluation.decodings import detector_of, refuse_failures
from coord_trainer.evaluation.score import headline, score_predictions

if TYPE_CHECKING:
    from coord_detect.answers.local import LocalEngine

_DRAWN_SIDE = 640
"""Longer side, in pixels, of the images for TensorBoard."""
_DRAWN_IMAGES = 4


class SubsetScorer:
    """Generates answers with the run's first decoding, and scores them as the finished run is scored.

    The subset is spread evenly over the images that are scored after training.
    """

    def __init__(self, config: RunConfig, images: ImageSet, processor: Any, vocab: CoordVocab | None) -> None:
        section = config.evaluation
        total = min(len(images), section.limit or len(images))
        count = min(total, section.ap_images)
        self.images = images.select([images.instances[i * total // count] for i in range(count)])
        self._config = config
        limit = section.max_new_tokens or token_limit(
            config, processor.tokenizer, images.words, config.data.most_objects
        )
        used = vocab if config.custom.coord_tokens.enabled else None
        without_model = LoadedCheckpoint(None, processor, used, system_text(config))
        alone = config.model_copy(update={"evaluation": section.model_copy(update={"views": ()})})
        self._detector = detector_of(without_model, alone, self.images, section.decoding[0], limit)

    def answer(self, model: Any, rank: int = 0, ranks: int = 1) -> list[Record]:
        """Return the answers to every `ranks`-th image, beginning with image `rank`."""
        engine = cast("LocalEngine", self._detector.engine)
        detector = replace(self._detector, engine=replace(engine, checkpoint=replace(engine.checkpoint, model=model)))
        share, batch = sources_of(self.images)[rank::ranks], self._config.evaluation.batch_size
        answers: list[Record] = []
        with attend_to_whole_rows(model), tqdm(total=len(share), desc="answering", unit="img") as bar:
            for records in prediction_records(detector, share, batch, raw=True):
                answers += records
                bar.update(len(records))
        refuse_failures(answers)
        return answers

    def score(self, answers: list[Record]) -> dict[str, float]:
        """Return AP and AP50 of the answers; see `headline`."""
        return headline(score_predictions(self._config, answers, self.images, self._config.evaluation.decoding[0]))

    def drawn(self, answers: list[Record]) -> dict[str, np.ndarray]:
        """Return the first few images by name, as 8-bit RGB [height, width, 3].

        The boxes answered are in colours, the ground truth in white.
        """
        answered = {record["image"]: record for record in answers}
        drawn = {}
        for place, instance in enumerate(self.images.instances[:_DRAWN_IMAGES]):
            if instance.image not in answered:
                continue
            image = self.images.image(place).copy()
            canvas = ImageDraw.Draw(image)
            for target in instance.targets:
                corners = [v * side for v, side in zip(target.bbox, image.size * 2, strict=True)]
                canvas.rectangle(corners, outline="white")
            found = self._detector.read(answered[instance.image], image)
            drawn[f"answers/{place + 1}"] = np.asarray(found.drawn(_DRAWN_SIDE))
        return drawn


class AnswerSchedule(TrainerCallback):
    """Requests scores every few steps and at the last one, and saves the best checkpoint.

    It has to precede callbacks that cancel an evaluation. After `patience` measurements in a row without a
    higher AP training stops; None never stops it.

    Attributes:
        due: whether the next evaluation scores answers
        alone: whether that evaluation only scores answers, without evaluation losses
    """

    def __init__(self, scorer: SubsetScorer, every: int, patience: int | None = None) -> None:
        self.scorer = scorer
        self._every = every
        self._patience = patience
        self.due = self.alone = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        self.due = state.global_step % self._every == 0 or state.global_step >= state.max_steps
        self.alone = self.due and not control.should_evaluate
        control.should_evaluate = control.should_evaluate or self.due

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:  # noqa: D102
        self.due = self.alone = False
        if AP not in (metrics or {}):
            return
        scores = answer_scores(state.log_history)
        waited, (step, value) = scores_since_best(scores), max(scores, key=lambda score: score[1])
        best = "the best so far" if not waited else f"the best was {value:.3f} at step {step}"
        say(f"  step {state.global_step}: AP {metrics[AP]:.3f}, {best}")
        control.should_save = control.should_save or not waited
        if self._patience is not None and waited >= self._patience:
            control.should_save = control.should_training_stop = True
            say(f"  training stops: AP has not risen in {waited} measurements (evaluation.ap_patience)")
