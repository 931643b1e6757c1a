"""Plug-in for `swift deploy` that registers the template which checkpoints were trained with.

    swift deploy --model CHECKPOINT --external_plugins apps/trainer/src/coord_trainer/swift/serving.py ...

For a family of your own, name the file that registers it before this one: `--external_plugins own.py .../serving.py`.
Without it swift refuses a checkpoint of a run with `template_type: 'qwen3_vl_coord' not in [...]`.
"""

from coord_trainer.swift.template import apply_coord_template_adapter

apply_coord_template_adapter()
