"""An evaluation: all figures of one set of answers, in one line, in a notebook and as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_codec.counts import counted
from coord_codec.other_words import use
from coord_eval.intake.collecting import collector_paused
from coord_eval.metrics.coco import COCO_KEYS
from coord_eval.metrics.figures import OTHER_NAMES, Figures
from coord_eval.page_options import MAX_OVERLAYS, ImageRoot, ReportSection

_ALL_FIGURES = ("stats", "box", "results", "metrics_dict", "results_dict", "summary", "summarize", "compute", "mean_ap")
"""Where pycocotools, torchmetrics and Ultralytics have all figures."""


class Evaluation(Figures):
    """All metrics of one set of answers, each computed when it is first used; `Figures` documents them.

    `evaluation["AP"]` is a figure by its name, also by those of torchmetrics and supervision (`map_50`). Pages are
    imported when they are asked for.
    """

    def brief(self) -> str:
        """Return the headline metrics in one line."""
        from coord_eval.report.page import brief

        return brief(self)

    if not TYPE_CHECKING:  # a type checker would let every name pass

        def __getattr__(self, name: str) -> Any:
            """Say where a figure is that another library has as an attribute."""
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # a property failed: its own error
            is_figure = name in OTHER_NAMES or name in COCO_KEYS
            has = f"[{name!r}]" if is_figure else ".coco" if name in _ALL_FIGURES else ""
            raise AttributeError(f"'Evaluation' object has no attribute {name!r}{use(has)}", name=name, obj=self)

    def __repr__(self) -> str:
        counts = self.counts
        numbers = ", ".join(counted(counts[f"{noun}s"], noun) for noun in ("image", "object", "detection"))
        return f"<Evaluation: {self.brief()}; {numbers}, {counted(len(self.notes), 'note')}>"

    def _repr_html_(self) -> str:
        from coord_eval.report.page import notebook_html

        return notebook_html(self)

    @collector_paused()
    def write_report(
        self,
        folder: str | Path,
        *,
        image_root: str | ImageRoot | None = None,
        title: str | None = None,
        sections: Sequence[ReportSection] = (),
        max_overlays: int = MAX_OVERLAYS,
        facts: Mapping[str, object] | None = None,
    ) -> Path:
        """Write `evaluation.json` and `report.html` into a folder, each atomically.

        Args:
            folder: created if missing; reports of an earlier evaluation are replaced
            image_root: folder of the images, outside of which no file is read, or a function from the name of an
                image to its file; by default the folder of the ground truth
            title: heading of the report
            sections: further sections, shown in front of the others
            max_overlays: maximum number of images drawn with ground truth and answer
            facts: what is named below the heading besides the date, for example the run and the model

        Returns:
            The path of `report.html`.

        Raises:
            OSError: if the folder cannot be written
        """
        from coord_eval.report.page import write_report

        return write_report(
            self, folder, image_root=image_root, title=title, sections=sections, max_overlays=max_overlays, facts=facts
        )
