"""The command `review`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coord_codec import InputError, geometry_of
from coord_codec.commands.options import Strict, with_options
from coord_codec.counts import counted
from coord_detect.cli.options import of_settings, words_of
from coord_detect.console import say
from coord_detect.served.request import Form
from coord_trainer.cli.main import app
from coord_trainer.cli.options import ConfigFile, load_libraries


@app.command()
@with_options(of_settings("views"))
def review(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] [ANNOTATIONS] [section.key=value]... | apply DECISIONS ANNOTATIONS",
            help="A checkpoint, adapter, export or run folder, which is not needed with --folds and -c; the "
            "annotations to review; settings of the answers. Or the decisions that the page saved, to be applied.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder of the review; a second call continues it.")],
    images: Annotated[Path | None, typer.Option(help="The folder of the images of the annotations.")] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="K",
            help="Train K runs, each on all parts of the records but one, by the configuration of -c or of the run "
            "MODEL; each part is judged by the model that has not seen it.",
        ),
    ] = None,
    config: ConfigFile = None,
    export: Annotated[
        list[Form] | None, typer.Option(help="Also write proposals for a labelling tool; may be repeated.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Delete the answers in --out and start anew.")] = False,
    strict: Strict = False,
    **options: Any,
) -> None:
    """Find labels that are probably wrong (label errors) by a model's answers and by how likely it finds each label.

    Example: uv run apps/trainer review runs/a val.json --images val --out reviewed
    """
    from coord_detect.detection.arguments import read_settings, split_words
    from coord_detect.detection.image_sources import annotated_sources
    from coord_detect.model.card import as_trained
    from coord_detect.model.checkpoints import locate_model
    from coord_trainer.config.run_config import load_run_config

    forms = tuple(dict.fromkeys(form.value for form in export or ()))
    if words[:1] == ["apply"]:
        _apply([Path(word) for word in words[1:]], out)
        return
    first, others, settings = split_words(words, endpoint=False)
    places = [*([first] if first is not None else []), *map(Path, others)]
    settings += words_of(options)
    resolved = read_settings(None, settings)

    if unfit := [form for form in forms if form in ("yolo", "voc")]:
        raise InputError(
            f"--export {unfit[0]}: a review has proposals with probabilities, which that form cannot state"
        )
    folds_alone = folds is not None and config is not None
    if len(places) not in ((1, 2) if folds_alone else (2,)):
        wanted = "ANNOTATIONS, with --folds and -c" if folds_alone else "MODEL and ANNOTATIONS"
        raise InputError(f"review: expected {wanted}, found {' '.join(map(str, places)) or 'nothing'}")
    *models, annotations = places
    model = models[0] if models else None

    # Who judges: the model, or the models of the folds, which are trained as -c or the run of the model says.
    training = None
    if folds is None:
        if config is not None:
            raise InputError(
                "--config: it says how the models of --folds are trained, and there are none; name --folds K"
            )
        answering = as_trained(resolved, locate_model(places[0]))
    else:
        file = config or places[0] / "config.yaml"
        if not file.is_file():
            raise InputError(f"--folds: {file}: no configuration of a run there; name one with -c CONFIG")
        answering = training = load_run_config(file, [])

    # What is judged.
    limit, geometry = resolved.evaluation.limit, answering.data.geometry
    if forms and not geometry_of(geometry).is_box:
        raise InputError(
            f"--export: the labels are drawn as {geometry}, and a review has only their boxes; decide on its page"
        )
    sources, truth = annotated_sources(annotations, images, geometry, limit, strict)
    if not any(instance.targets for instance in truth.instances):
        raise InputError(f"{annotations}: the annotations hold no objects: there is nothing to review")
    load_libraries()
    from coord_trainer.review.command import ReviewRequest, review_annotations

    request = ReviewRequest(model, sources, annotations.name, out, folds or 0, exports=forms, force=force)
    review_annotations(request, resolved, training)


def _apply(files: list[Path], out: Path) -> None:
    """Write annotations with decisions applied; see `coord-eval review apply`."""
    from coord_eval.review import apply_decisions

    if len(files) != 2:
        raise InputError(
            "review apply: expected DECISIONS ANNOTATIONS --out FILE: what the page saved, and what it is about"
        )
    decisions, annotations = files
    correction = apply_decisions(decisions, annotations, out)
    changed = counted(correction.counts["changed"], "label")
    say(f"{changed} changed: {correction.file}; each with its reason: {correction.list}")
