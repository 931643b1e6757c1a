"""Settings that do nothing as a configuration stands: told when a run begins, since a shared file may state them."""

from __future__ import annotations

import re
from typing import Any

from coord_detect.settings.rules import Rule, value_of

_RATES = ("learning_rate", "vit_lr", "aligner_lr")
_OF_ADAM = {
    "adam_beta1": re.compile("adamw|lion"),
    "adam_beta2": re.compile("adamw|lion"),
    "adam_epsilon": re.compile("adamw"),
}
"""Arguments of single optimizers, and the names in `training.optim` that take them."""
_IDLE = (
    (
        "custom.coord_objective.use_geom_loss",
        "it acts on the box loss alone",
        "custom.coord_objective",
        ("lambda_coord", "alpha_l1", "beta_giou", "expectation_temperature", "matching", "shape_boxes"),
    ),
    (
        "custom.coord_objective.use_coord_ce",
        "it acts on the cross-entropy of coordinate tokens alone",
        "custom.coord_objective",
        ("lambda_coord_ce",),
    ),
    (
        "custom.coord_soft_ce_w1.enabled",
        "it acts on the soft terms alone",
        "custom.coord_soft_ce_w1",
        ("soft_ce_weight", "w1_weight", "gate_weight", "temperature", "target_sigma", "target_truncate"),
    ),
    (
        "custom.coord_offset.enabled",
        "it acts on the offsets alone",
        "custom.coord_offset",
        ("ids", "allow_wildcard", "tie_head", "embed_lr", "head_lr", "weight_decay", "dtype"),
    ),
)
"""A switch, what the settings of a section act on when it is on, and these settings."""

_RULES = (
    *(
        Rule(
            lambda c, switch=switch, section=section, name=name: (
                not value_of(c, switch) and _is_changed(value_of(c, section), name)
            ),
            (f"{section}.{name}", switch),
            f"{because}, and has no effect",
        )
        for switch, because, section, names in _IDLE
        for name in names
    ),
    Rule(
        lambda c: c.training.get("optimizer") == "multimodal_coord_offset" and not c.custom.coord_offset.enabled,
        ("training.optimizer", "custom.coord_offset.enabled"),
        "there are no offsets to give groups of their own, and the groups are those of multimodal",
    ),
    Rule(
        lambda c: c.custom.coord_offset.enabled and c.custom.coord_offset.tie_head and c.custom.coord_offset.head_lr,
        ("custom.coord_offset.head_lr", "custom.coord_offset.tie_head"),
        "embedding and head share one table, which learns at embed_lr",
    ),
    Rule(
        lambda c: (
            c.custom.coord_offset.enabled and c.custom.coord_offset.allow_wildcard and not c.custom.coord_offset.ids
        ),
        ("custom.coord_offset.allow_wildcard", "custom.coord_offset.ids"),
        "the tokenizer's coordinates are trained, and the wildcard is none of them",
    ),
    *(
        Rule(
            lambda c, name=name, takes=takes: (
                name in c.training and not takes.search(c.training.get("optim", "adamw_torch"))
            ),
            (f"training.{name}", "training.optim"),
            "this optimizer does not take it",
        )
        for name, takes in _OF_ADAM.items()
    ),
    Rule(
        lambda c: not c.custom.coord_objective.term_options.keys() <= c.custom.objective.weights.keys(),
        ("custom.coord_objective.term_options", "custom.coord_objective.extra_weights"),
        "a term with options has no weight, and is not computed",
    ),
    Rule(
        lambda c: (
            c.custom.coord_soft_ce_w1.enabled
            and c.custom.coord_soft_ce_w1.target_sigma > c.custom.coord_soft_ce_w1.target_truncate
        ),
        ("custom.coord_soft_ce_w1.target_sigma", "custom.coord_soft_ce_w1.target_truncate"),
        "soft targets are cut off before they fall, so that all bins around the true one count nearly the same",
    ),
    Rule(
        lambda c: bool(c.evaluation.views) and c.evaluation.images == "none",
        ("evaluation.views", "evaluation.images"),
        "nothing is answered, and views have no effect",
    ),
    Rule(
        lambda c: 0 < (c.training.get("max_steps") or 0) < (c.training.get("warmup_steps") or 0),
        ("training.warmup_steps", "training.max_steps"),
        "training ends before the learning rate is reached",
    ),
    *(
        Rule(
            lambda c, name=name: c.training.get(name) == 0,
            (f"training.{name}",),
            "what it is the rate of is loaded and computed, and does not change",
        )
        for name in _RATES
    ),
)


def settings_without_effect(config: Any) -> list[str]:
    """Return a line for each setting of a configuration that has no effect beside the others."""
    return [rule.message(config) for rule in _RULES if rule.when(config)]


def _is_changed(section: Any, name: str) -> bool:
    default = type(section).model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(section, name) != default)
