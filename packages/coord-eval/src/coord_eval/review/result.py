"""A review as a whole, and the files it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from coord_codec.files import write_text
from coord_eval.page_options import MOST_SHOWN, ImageRoot
from coord_eval.review.judged import JudgedLabels


class Review(JudgedLabels):
    """A review of all labels of a set: suspicions, and the judgement of every label; see `JudgedLabels`."""

    def write(
        self,
        folder: str | Path,
        *,
        image_root: str | ImageRoot | None = None,
        title: str = "Review of labels",
        most: int = MOST_SHOWN,
        facts: Mapping[str, object] | None = None,
    ) -> Path:
        """Write `review.jsonl`, `review.json` and the page `review.html` into a folder; return the page.

        Args:
            folder: created if missing; it may hold an earlier review, which is replaced, but no decisions
            image_root: folder of the images, outside of which no file is read, or a function from the name of an image
                to its file; by default the folder of the ground truth
            title: heading of the page
            most: most suspicions on the page
            facts: what the page is about, such as the names of model and data, shown below the heading

        Raises:
            OSError: if the folder cannot be written
        """
        from coord_eval.review.page import review_page

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        root: ImageRoot | None = Path(image_root) if isinstance(image_root, str) else image_root
        lines = (json.dumps(self.to_line(finding), ensure_ascii=False, allow_nan=False) for finding in self.findings)
        html = review_page(self, root, title, most, facts)
        write_text(folder / "review.jsonl", "".join(f"{line}\n" for line in lines))
        write_text(folder / "review.json", json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        write_text(folder / "review.html", html)
        return folder / "review.html"
