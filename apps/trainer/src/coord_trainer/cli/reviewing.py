"""Commands that review annotations and help to make new ones: `review`, `label-backend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coord_codec import InputError, geometry_of
from coord_codec.counts import counted
from coord_trainer.cli.answering import Form
from coord_trainer.cli.main import app
from coord_trainer.cli.options import Checkpoint, ConfigFile, MinScore, Precision, Recall, Strict, Views, load_libraries
from coord_trainer.console import say


@app.command()
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
    unlabelled: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Choose images of this folder to label next.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Number of images to choose; 200 if not given.")] = None,
    export: Annotated[
        list[Form] | None,
        typer.Option(help="Also write proposals, or answers to chosen images, for a labelling tool; may be repeated."),
    ] = None,
    views: Views = None,
    force: Annotated[bool, typer.Option("--force", help="Delete the answers in --out and start anew.")] = False,
    strict: Strict = False,
) -> None:
    """Find labels that are probably wrong by a model's answers and by how likely it finds each label; or choose images.

    Example: uv run apps/trainer review runs/a val.json --images val --out reviewed

    With --unlabelled it ranks images without labels by what labelling them would teach.

    Example: uv run apps/trainer review runs/a --unlabelled photos --count 200 --out next --export labelstudio
    """
    from coord_trainer.answers.detector import as_trained
    from coord_trainer.checkpoints import locate_model
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.detect.arguments import as_setting, check_settings, split_words
    from coord_trainer.detect.image_sources import annotated_sources, find_sources

    forms = tuple(dict.fromkeys(form.value for form in export or ()))
    if words[:1] == ["apply"]:
        _apply([Path(word) for word in words[1:]], out)
        return
    first, others, settings = split_words(words, endpoint=False)
    places = [*([first] if first is not None else []), *map(Path, others)]
    settings += as_setting(views)
    resolved = load_run_config(None, settings, trains=False)
    check_settings(settings, endpoint=False, decodings=len(resolved.evaluation.decoding))

    # What to label next.
    if unlabelled is not None:
        given = {"--images": images, "--folds": folds, "--config": config}
        if named := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{named[0]} is about annotations, and --unlabelled has none; leave one of them out")
        if len(places) != 1:
            raise InputError(
                f"--unlabelled: expected the model alone, found {len(places)} names; MODEL --unlabelled FOLDER"
            )
        if not unlabelled.is_dir():
            raise InputError(f"--unlabelled {unlabelled}: expected a folder of images, found none")
        locate_model(places[0])
        sources = find_sources([str(unlabelled)])
        load_libraries()
        from coord_trainer.review.label_next import label_next

        label_next(places[0], sources, out, count or 200, resolved, forms, force)
        return

    # Which labels are wrong.
    if count is not None:
        raise InputError("--count is about the choice of images; it goes with --unlabelled FOLDER")
    if unfit := [form for form in forms if form in ("yolo", "voc")]:
        raise InputError(
            f"--export {unfit[0]}: a review has proposals with probabilities, which that form cannot state"
        )
    alone = folds is not None and config is not None
    if len(places) != (1 if alone and len(places) == 1 else 2):
        wanted = "ANNOTATIONS, with --folds and -c" if alone else "MODEL and ANNOTATIONS"
        raise InputError(f"review: expected {wanted}, found {' '.join(map(str, places)) or 'nothing'}")
    model = places[0] if len(places) == 2 else None
    if config is not None and folds is None:
        raise InputError("--config: it says how the models of --folds are trained, and there are none; name --folds K")
    training, answering = None, resolved
    if folds is not None:
        file = config or (model / "config.yaml" if model is not None else None)
        if file is None or not file.is_file():
            raise InputError(f"--folds: {file}: no configuration of a run there; name one with -c CONFIG")
        answering = training = load_run_config(file, [])
    elif model is not None:
        answering = as_trained(resolved, locate_model(model))
    limit, geometry = resolved.evaluation.limit, answering.data.geometry
    if forms and not geometry_of(geometry).is_box:
        raise InputError(
            f"--export: the labels are drawn as {geometry}, and a review has only their boxes; decide on its page"
        )
    sources, truth = annotated_sources(places[-1], images, geometry, limit, strict)
    if not any(instance.targets for instance in truth.instances):
        raise InputError(f"{places[-1]}: the annotations hold no objects: there is nothing to review")
    load_libraries()
    from coord_trainer.review.command import ReviewRequest, review_annotations

    request = ReviewRequest(model, sources, places[-1].name, out, folds or 0, exports=forms, force=force)
    review_annotations(request, resolved, training)


def _apply(files: list[Path], out: Path) -> None:
    """Write annotations with decisions applied; see `coord-eval review apply`."""
    from coord_eval.review import apply_decisions

    if len(files) != 2:
        raise InputError(
            "review apply: expected DECISIONS ANNOTATIONS --out FILE: what the page saved, and what it is about"
        )
    correction = apply_decisions(*files, out)
    changed = counted(correction.counts["changed"], "label")
    say(f"{changed} changed: {correction.file}; each with its reason: {correction.list}")


@app.command("label-backend")
def label_backend(
    model: Checkpoint,
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[section.key=value]...")] = None,
    *,
    images: Annotated[
        Path | None, typer.Option(help="The folder of Label Studio's local files; images elsewhere are not opened.")
    ] = None,
    label_studio: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Label Studio's own address, from which uploaded images are fetched."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for a free one.")] = 9090,
    views: Views = None,
    min_score: MinScore = None,
    precision: Precision = None,
    recall: Recall = None,
) -> None:
    """Serve a model to Label Studio as its ML backend, which pre-annotates images with boxes.

    Uploaded images are fetched from --label-studio with the token in LABEL_STUDIO_API_KEY.

    Example: uv run apps/trainer label-backend runs/a --images photos --label-studio http://127.0.0.1:8080
    """
    from coord_trainer.checkpoints import locate_model
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.detect.arguments import as_setting, check_settings, check_thresholds

    settings = [*(overrides or []), *as_setting(views)]
    check_thresholds(min_score, precision, recall)
    resolved = load_run_config(None, settings, trains=False)
    check_settings(settings, endpoint=False, decodings=len(resolved.evaluation.decoding))
    locate_model(model)
    from coord_trainer.label_backend.images import TaskImages
    from coord_trainer.label_backend.server import serve

    sources = TaskImages.of(images, label_studio)
    load_libraries()
    from coord_trainer.answers.detector import Detector

    detector = Detector.load(model, resolved, min_score=min_score, precision=precision, recall=recall)
    serve(detector, sources, host, port)
