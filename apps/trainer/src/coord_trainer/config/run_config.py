"""`RunConfig`: the complete, frozen configuration of a run, checked before any slow import.

It is merged by OmegaConf from YAML files, each with at most one `extends`, and from `section.key=value` words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from coord_codec import GEOMETRIES, InputError
from coord_codec.files import read_text
from coord_trainer.config.base import Section
from coord_trainer.config.decoding import STRATEGIES, strategies_for
from coord_trainer.config.objective import CustomConfig
from coord_trainer.config.plugins import import_plugins
from coord_trainer.config.sections import DataSection, EvaluationSection, ModelSection, RunSection
from coord_trainer.config.swift_arguments import argument_table, check_training, did_you_mean, shards_weights, yaml_word
from coord_trainer.elsewhere import pointer

_MERGE_ERRORS = (OmegaConfBaseException, TypeError)
"""OmegaConf raises a TypeError where a list would replace a section."""


class RunConfig(Section):
    """The configuration of one run, one field per section."""

    run: RunSection = Field(default_factory=RunSection, description="folder, seed and conduct of the run")
    model: ModelSection = Field(default_factory=ModelSection, description="the checkpoint that is trained")
    data: DataSection = Field(default_factory=DataSection, description="annotations, images and target text")
    custom: CustomConfig = Field(default_factory=CustomConfig, description="coordinate tokens and loss terms")
    training: dict[str, Any] = Field(
        default_factory=dict, description="any supported argument of ms-swift's SFT, for example learning_rate"
    )
    evaluation: EvaluationSection = Field(
        default_factory=EvaluationSection, description="what is generated and scored after training"
    )

    @model_validator(mode="before")
    @classmethod
    def _knows_its_geometry(cls, values: Any) -> Any:
        """Import the plugins first if the geometry is none of those that are known, since one of them may add it."""
        name, plugins = _at(values, "data", "geometry"), _at(values, "custom", "coord_objective", "plugins")
        if isinstance(name, str) and name not in GEOMETRIES and isinstance(plugins, (list, tuple)):
            import_plugins(plugin for plugin in plugins if isinstance(plugin, str))
        return values

    @field_validator("training")
    @classmethod
    def _swift_takes(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        custom = info.data.get("custom")
        return check_training(value, offsets=custom is not None and custom.coord_offset.enabled)

    @model_validator(mode="after")
    def _sections_agree(self) -> RunConfig:
        for problem in self._contradictions():
            raise ValueError(problem)
        return self

    def _contradictions(self) -> Iterator[str]:
        """Yield a message for each pair of settings that contradict each other, naming both."""
        custom, training, data, evaluation = self.custom, self.training, self.data, self.evaluation
        tuner = training.get("tuner_type", "lora")
        if custom.coord_offset.enabled and tuner != "lora":
            yield (
                f"custom.coord_offset.enabled is true but training.tuner_type is {tuner}: the offsets are part of a "
                "PEFT adapter; set training.tuner_type: lora, or switch the offsets off (full training learns the rows)"
            )
        if training.get("optimizer") == "multimodal_coord_offset" and not custom.coord_offset.enabled:
            yield (
                "training.optimizer is multimodal_coord_offset but custom.coord_offset.enabled is false: there are "
                "no offsets to give a rate of their own; enable them or use multimodal"
            )
        for name in ("deepspeed", "gradient_checkpointing"):
            if self.run.gradient_norms and training.get(name):
                yield (
                    f"run.gradient_norms is true but training.{name} is set: a term's own gradient cannot be computed "
                    "under it; switch one of the two off"
                )
        if self.run.on_nan == "skip" and training.get("deepspeed"):
            yield (
                "run.on_nan is skip but training.deepspeed is set: DeepSpeed expects the same gradients of every "
                "batch; set run.on_nan: stop"
            )
        if evaluation.ap_patience is not None and evaluation.ap_steps is None:
            yield (
                "evaluation.ap_patience is set but evaluation.ap_steps is not: early stopping needs AP during "
                "training; set both or neither"
            )
        if evaluation.ap_steps is not None:
            yield from self._ap_contradictions()
        varies = [section.varies for section in (data, *map(data.of_source, data.sources)) if section.varies]
        if data.preload and varies:
            yield (
                f"data.preload is true but {varies[0]}: samples differ in each epoch, so that encoded ones cannot be "
                "kept; change one of the two"
            )
        needing_tokens = [name for name in evaluation.readings if STRATEGIES[name].needs_tokens]
        if needing_tokens and not custom.coord_tokens.enabled:
            yield (
                f"evaluation.readings names {needing_tokens[0]} but custom.coord_tokens.enabled is false: grammar and "
                "distributions require coordinate tokens; use [greedy] for such answers"
            )
        yield from self._noise_contradictions()
        if not data.shape.is_box:
            yield from self._shape_contradictions()
        elif custom.coord_objective.shape_boxes:
            yield (
                "custom.coord_objective.shape_boxes is true but data.geometry is box, whose box loss has GIoU already: "
                "remove it"
            )
        targets = training.get("target_modules") or []
        modules = {str(name).rsplit(".", 1)[-1] for name in ([targets] if isinstance(targets, str) else targets)}
        of_vocabulary = sorted(modules & {"lm_head", "embed_tokens"})
        if training.get("use_dora") and of_vocabulary:
            yield (
                f"training.use_dora is true and training.target_modules names {of_vocabulary[0]}: DoRA on the "
                "vocabulary cannot be merged correctly; leave it out of target_modules (all-linear does), or train its "
                "rows with custom.coord_offset"
            )
        if evaluation.pictures == "train" and len(data.sources) > 1:
            yield (
                f"evaluation.pictures is train but data.sources has {len(data.sources)} sources, each with its own "
                "prompt; name data.heldout_annotations with evaluation.pictures: heldout, or set it to none"
            )
        if data.sources and not any(source.annotations for source in data.sources):
            yield "data.sources: expected at least one source with annotations, found only conversations"
        if evaluation.pictures == "heldout" and data.given and data.heldout_annotations is None:
            yield (
                "evaluation.pictures is heldout but data.heldout_annotations is not given: name it, or set "
                "evaluation.pictures to train (memorising) or none"
            )

    def _noise_contradictions(self) -> Iterator[str]:
        """Yield a message for each setting that contradicts `data.noise_objects`."""
        data = self.data
        count, noise = data.noise_objects, f"data.noise_objects is {data.noise_objects}"
        if count is None:
            if filled := [name for name in self.evaluation.readings if STRATEGIES[name].filled]:
                yield (
                    f"evaluation.readings names {filled[0]} but data.noise_objects is not set: only a model that was "
                    "trained with noise objects can mark objects that do not exist; name another"
                )
            return
        if not self.custom.coord_tokens.enabled:
            yield f"{noise} but custom.coord_tokens.enabled is false: the digits of noise boxes would be learnt"
        if count > data.max_objects:
            yield f"{noise} but data.max_objects is {data.max_objects}: the first must not be above the second"
        if not data.shape.derives_from_box:
            yield f"{noise} but data.geometry is {data.geometry}: a random box has no {data.geometry}"
        if self.training.get("truncation_strategy") == "left":
            yield (
                f"{noise} but training.truncation_strategy is left: noise objects are identified by counting from the "
                "first object; use right, or delete"
            )

    def _shape_contradictions(self) -> Iterator[str]:
        """Yield a message for each setting that applies to boxes only."""
        data, flags, geometry = self.data, self.custom.coord_objective, f"data.geometry is {self.data.geometry}"
        allowed = strategies_for(data.shape, self.custom.coord_tokens.enabled, data.noise_objects is not None)
        if others := [name for name in self.evaluation.readings if name not in allowed]:
            choices = ", ".join(allowed)
            yield f"evaluation.readings names {others[0]} but {geometry}: it is for boxes only; name {choices}"
        if flags.matching == "hungarian":
            yield f"custom.coord_objective.matching is hungarian but {geometry}: it matches boxes only; set sequence"
        if flags.shape_boxes and not data.shape.has_extent:
            yield f"custom.coord_objective.shape_boxes is true but {geometry}: a {data.geometry} has no box around it"
        if not data.shape.derives_from_box and not data.given:
            yield f"{geometry} but data.annotations is not given: generated shapes have no {data.geometry}"

    def _ap_contradictions(self) -> Iterator[str]:
        if self.evaluation.pictures == "none":
            yield (
                "evaluation.ap_steps is set but evaluation.pictures is none: there are no images to score during "
                "training; set evaluation.pictures to heldout or train"
            )
        for name, instead in (
            ("metric_for_best_model", "the best checkpoint is then the one with the highest AP"),
            ("greater_is_better", "the best checkpoint is then the one with the highest AP"),
            ("early_stop_interval", "evaluation.ap_patience then decides when to stop"),
        ):
            if name in self.training:
                yield (f"evaluation.ap_steps and training.{name} are both set: {instead}; leave one of the two out")
        if shards_weights(self.training.get("deepspeed")):
            yield (
                "evaluation.ap_steps is set but training.deepspeed shards the weights (stage 3), and answers need a "
                "complete model on each rank; use zero2, or score checkpoints afterwards (evaluation.each_checkpoint)"
            )


def _at(values: Any, *names: str) -> Any:
    """Return a value of a configuration that is not validated yet; None if there is none."""
    for name in names:
        values = values.get(name) if isinstance(values, Mapping) else getattr(values, name, None)
    return values


def load_run_config(
    file: Path | None, overrides: Sequence[str], base: Path | None = None, trains: bool = True
) -> RunConfig:
    """Resolve a config file and overrides.

    Args:
        file: YAML; paths in `extends` are relative to the file, or else to the working folder
        overrides: words like `run.dir=out`, values in YAML
        base: another YAML that `file` overrides, as if its topmost parent extended it
        trains: false for inference, which needs no objective

    Raises:
        InputError: a setting is wrong; the message names file and field.
    """
    layers = [_read(path, ()) for path in (base, file) if path is not None]
    try:
        merged = OmegaConf.merge(*layers, {})
    except _MERGE_ERRORS as error:
        raise InputError(f"{file}: {_first_line(error)}") from None
    for word in overrides:
        if "=" not in word or word.startswith(("-", "=")):
            raise InputError(f"{word}: expected section.key=value, for example run.dir=out")
        name, _, text = word.partition("=")
        if not text:
            raise InputError(
                f"{word}: expected a value, found nothing; {word}null unsets it, {word}'\"\"' is empty text"
            )
        try:
            if "#" in text and "#" not in str(yaml.safe_load(text)):
                raise ValueError(f"what follows # is a comment in YAML; put the value in quotes: {name}='\"...\"'")
            merged = OmegaConf.merge(merged, OmegaConf.from_dotlist([word]))
        except (*_MERGE_ERRORS, yaml.YAMLError, ValueError) as error:
            raise InputError(f"{word}: {_first_line(error)}") from None
    try:
        values = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        raise InputError(f"{file or 'command line'}: {_first_line(error)}") from None
    source = " and ".join([str(file)] * (file is not None) + ["command line"] * (bool(overrides) or file is None))
    return check_run_config(values, source, trains)


def check_run_config(values: Any, source: str, trains: bool = True) -> RunConfig:
    """Validate a mapping; the error message has one line per fault, each with the field's dotted name."""
    try:
        if isinstance(values, dict):
            # A missing section would be validated without the context, and its fault would hide unknown keys.
            values = {"custom": {}} | values
        return RunConfig.model_validate(values, context={"trains": trains})
    except ValidationError as error:
        lines = list({_field(item): _message(item) for item in reversed(error.errors())}.values())[::-1]
        raise InputError(f"{source}: " + "\n".join(lines)) from None


_TEXT = {"string_type": "expected text", "path_type": "expected a path"}
_EXPECTED = _TEXT | {"tuple_type": "expected a list"}
"""Words for the types of pydantic's errors that it explains in terms of Python."""


def _field(item: Any) -> str:
    """Return the dotted name of a field, without the names that pydantic adds for members of a union."""
    return ".".join(str(part) for part in item["loc"] if not re.search(r"[\[(]", str(part)))


def _message(item: Any) -> str:
    field = _field(item)
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return f"{field}: unknown key{_near(item['loc'])}"
    if message.startswith(("custom.", "data.", "training.", "evaluation.", "model.", "run.")):
        return message  # the validator has named the fields itself
    value, kind = item.get("input"), item["type"]
    message = _EXPECTED.get(kind, message[:1].lower() + message[1:])
    hint = yaml_word(value, is_text=kind in _TEXT)
    hint = f"; write [{value}]" if kind == "tuple_type" and isinstance(value, str) else hint
    return f"{field}: {message}, found {value!r}{hint}"


def _near(location: Sequence[Any]) -> str:
    """Return a hint about an unknown key: where it belongs, the most similar key, or all keys of the section."""
    model: Any = RunConfig
    for part in location[:-1]:
        if isinstance(part, int):  # an entry of a list of sections
            model = get_args(model)[0]
            continue
        info = getattr(model, "model_fields", {}).get(part)
        model = info.annotation if info is not None else None
    name, keys = str(location[-1]), list(getattr(model, "model_fields", ()))
    elsewhere = [path for path in _paths(RunConfig) if path.rpartition(".")[2] == name]
    if name in argument_table():
        elsewhere.append(f"training.{name}")
    if len(elsewhere) == 1:
        return f"; it belongs at {elsewhere[0]}"
    return did_you_mean(name, keys) or f"; known here: {', '.join(keys)}" * bool(keys)


def _paths(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every section and key."""
    for name, info in model.model_fields.items():
        yield prefix + name
        if hasattr(info.annotation, "model_fields"):
            yield from _paths(info.annotation, f"{prefix}{name}.")


def read_yaml(file: Path) -> Any:
    """Return the contents of a YAML file.

    Raises:
        InputError: the file cannot be read, is not valid YAML, or states a key twice.
    """
    try:
        return OmegaConf.to_container(OmegaConf.create(read_text(file)))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None


def _read(file: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if not file.is_file():
        found = "expected a config file, found a folder" if file.is_dir() else "no such config file"
        raise InputError(f"{file}: {found}{pointer(file.as_posix())}")
    if file.resolve() in seen:
        raise InputError(f"{file}: extends itself, through {' -> '.join(map(str, seen))}")
    values = read_yaml(file) or {}
    if not isinstance(values, dict):
        raise InputError(f"{file}: expected a mapping of sections, found a {type(values).__name__}")
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise InputError(f"{file}: extends: expected one file name, found {base!r}")
    beside = file.parent / base
    parent = _read(beside if beside.is_file() else Path(base), (*seen, file.resolve()))
    try:
        return OmegaConf.to_container(OmegaConf.merge(parent, values))
    except _MERGE_ERRORS as error:
        raise InputError(f"{file}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def flat_settings(values: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested mappings: dotted name -> value."""
    if not isinstance(values, dict):
        return {name: values}
    parts = (flat_settings(value, f"{name}.{key}" if name else str(key)) for key, value in values.items())
    return {inner: value for part in parts for inner, value in part.items()}


def changed_settings(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ between two nested mappings, by dotted name; None for a missing value."""
    first, second = flat_settings(one), flat_settings(other)
    pairs = {name: (first.get(name), second.get(name)) for name in (first | second)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
