"""`Settings`: all that answers depend on besides model and images, in one frozen record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from coord_codec import GEOMETRIES
from coord_codec.commands.plugins import import_plugins
from coord_detect.settings.base import Section
from coord_detect.settings.rules import Rule, first_contradiction
from coord_detect.settings.sections import ANSWERING_RULES, Answering, Asking, Coordinates, Loading


class Settings(Section):
    """How a model is loaded, asked and answers; what is not set is taken from the model's `coordexp.json`.

    The sections have the names that they have in the configuration of a run, whose record extends this one, so that a
    file or a word `section.key=value` says the same to both.

    Example:
        >>> settings = Settings(evaluation={"decoding": {"boxes": "best_iou"}, "views": "mirror"})
        >>> settings.evaluation.decoding[0].name, settings.evaluation.views
        ('none-best_iou', ('mirror',))
    """

    RULES: ClassVar[tuple[Rule, ...]] = ANSWERING_RULES
    """Contradictions between the sections."""
    ALTERNATIVES: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of settings that mean the same, of which the later one counts."""

    model: Loading = Field(default_factory=Loading, description="how the checkpoint is loaded")
    data: Asking = Field(default_factory=Asking, description="how the model is asked, and the form of its answers")
    custom: Coordinates = Field(default_factory=Coordinates, description="how coordinates are written")
    training: dict[str, Any] = Field(
        default_factory=dict, description="`system`, the system message: a text, or the name of a .txt file"
    )
    evaluation: Answering = Field(default_factory=Answering, description="how images are answered")
    plugins: tuple[str, ...] = Field(
        (),
        description="Python files or modules that are imported first and register rows of your own: geometries, model "
        "families, views",
    )

    @field_validator("training")
    @classmethod
    def _of_training(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Refuse what says nothing of answers; a run's own record replaces this check."""
        if unknown := [name for name in value if name != "system"]:
            raise ValueError(f"training.{unknown[0]}: it has no effect on answers; of a training only system has")
        return value

    @model_validator(mode="before")
    @classmethod
    def _plugins_come_first(cls, values: Any) -> Any:
        """Import the plugins, since they register rows that other settings name."""
        plugins, geometry = _at(values, "plugins"), _at(values, "data", "geometry")
        if isinstance(plugins, (list, tuple)):
            import_plugins((plugin for plugin in plugins if isinstance(plugin, str)), "plugins")
        if isinstance(geometry, str) and geometry not in GEOMETRIES:
            raise ValueError(
                f"data.geometry: expected one of {', '.join(GEOMETRIES)}, found {geometry!r}; one of your own is added "
                "by a file that calls coord_codec.register_geometry and is named in plugins"
            )
        return values

    @model_validator(mode="after")
    def _sections_agree(self) -> Settings:
        if problem := first_contradiction(self, self.RULES):
            raise ValueError(problem)
        return self

    @classmethod
    def further_names(cls) -> Iterable[str]:
        """Return dotted names of settings that no field states, for hints about unknown names."""
        return ()


def _at(values: Any, *names: str) -> Any:
    """Return a value of a configuration that is not validated yet; None if there is none."""
    for name in names:
        values = values.get(name) if isinstance(values, Mapping) else getattr(values, name, None)
    return values


Given = TypeVar("Given", bound=Settings)
"""The kind of settings that a function was given, a run's own included, and returns."""
