"""The reward of sampled answers in training, with their log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import CoordGrid
from coord_eval.rewards import RewardedAnswer, box_reward
from coord_trainer.config.run_config import RunConfig


class BoxReward:
    """A reward function as ms-swift calls it; means go to the log line, single answers to answers.jsonl.

    Both are of the answers of this rank; ms-swift's own `reward` and `reward_std` are of all ranks.

    Args:
        config: of the run
        file: where answers are listed; None for nowhere
    """

    def __init__(self, config: RunConfig, file: Path | None) -> None:
        self._settings = config.reward
        self._format = config.data.markers if config.data.style == "markers" else config.data.style
        # A run without coordinate tokens learns to write numbers from 0 to the grid's scale.
        self._scale = None if config.custom.coord_tokens.enabled else float(CoordGrid().scale)
        self._file = file
        self._step = -1
        self._logged = 0
        self._values: dict[str, list[float]] = defaultdict(list)

    def __call__(self, completions: Sequence[str], solution: Sequence[Any], **columns: Any) -> list[float]:
        """Return the reward of each answer."""
        rewarded = box_reward(
            completions, solution, self._settings.kind, format=self._format, scale=self._scale, parts=True
        )
        for answer in rewarded:
            self._gather(answer)
        if self._file is not None:
            self._write(completions, rewarded, columns)
        return [answer.value for answer in rewarded]

    def means(self) -> dict[str, float]:
        """Return the means over the answers since the last call, for a log line."""
        means = {f"answers/{name}": float(np.mean(values)) for name, values in self._values.items()}
        self._values.clear()
        return means

    def _gather(self, answer: RewardedAnswer) -> None:
        for name, value in answer.parts.items():
            self._values[f"reward_{name}"].append(value)
        self._values["boxes"].append(answer.boxes)
        self._values["hits"].append(answer.hits)
        self._values["objects"].append(answer.objects)
        self._values["duplicates"].append(answer.duplicates)
        self._values["dropped"].append(answer.dropped)

    def _write(self, texts: Sequence[str], rewarded: Sequence[RewardedAnswer], columns: dict[str, Any]) -> None:
        step = getattr(columns.get("trainer_state"), "global_step", 0)
        if step != self._step:
            self._step, self._logged = step, 0
        samples = columns.get("sample", [None] * len(texts))
        count = max(0, min(self._settings.logged - self._logged, len(texts)))
        with self._file.open("a", encoding="utf-8") as file:
            for text, answer, sample in zip(texts[:count], rewarded[:count], samples[:count], strict=True):
                line = {"step": step + 1, "sample": sample, "text": text, "reward": answer.value, **answer.parts}
                counts = {name: getattr(answer, name) for name in ("objects", "boxes", "hits", "duplicates", "dropped")}
                file.write(json.dumps(line | counts, ensure_ascii=False) + "\n")
        self._logged += count
