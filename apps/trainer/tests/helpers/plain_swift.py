"""A run of plain swift on samples that were encoded already: `plain_swift.py FOLDER`, without coord_adapter.

Its patch embedding multiplies as ours does on a CPU, which rounds otherwise than the convolution.
"""

import json
import sys
from pathlib import Path

import torch


def main(folder):
    from swift.arguments import SftArguments
    from swift.callbacks import TrainerCallback, callbacks_map
    from swift.pipelines.train.sft import SwiftSft

    from coord_detect.model.patch_embedding import multiply_patches
    from coord_trainer.swift.template import apply_coord_template_adapter

    class Record(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
            multiply_patches(model)
            (folder / "groups.json").write_text(json.dumps(groups_of(model, optimizer)))

    class Samples(list):
        def __getitem__(self, index):
            return dict(super().__getitem__(index))  # swift's collator takes things out

    class Plain(SwiftSft):
        def _prepare_dataset(self):
            return [Samples(torch.load(folder / "samples.pt", weights_only=True)), None]

    apply_coord_template_adapter()
    callbacks_map["record"] = Record
    arguments = json.loads((folder / "arguments.json").read_text()) | {"use_logits_to_keep": True}
    done = Plain(SftArguments(**arguments, callbacks=["record"])).main()
    (folder / "losses.json").write_text(json.dumps([x["loss"] for x in done["log_history"] if "loss" in x]))
    assert not [name for name in sys.modules if name.startswith(("coord_adapter", "coord_losses"))]


def groups_of(model, optimizer):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        [group["lr"], group["weight_decay"], [names[id(parameter)] for parameter in group["params"]]]
        for group in optimizer.param_groups
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
