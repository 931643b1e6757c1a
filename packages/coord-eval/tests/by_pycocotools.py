"""pycocotools as one uses it by hand."""

import contextlib
import io

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def by_pycocotools(truth, results, kind="bbox", **params) -> COCOeval:
    """Evaluate boxes or other shapes; ids move up by one, since an object with id 0 cannot be matched."""
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {**truth, "annotations": [{**a, "id": a["id"] + 1} for a in truth["annotations"]]}
        coco.createIndex()
        run = COCOeval(coco, coco.loadRes(results), kind)
        vars(run.params).update(params)
        run.evaluate()
        run.accumulate()
        if not params:
            run.summarize()
    return run
