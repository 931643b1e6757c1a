"""Plug-in for `swift deploy`: the template that checkpoints were trained under.

    swift deploy --model CHECKPOINT --external_plugins apps/trainer/src/coord_trainer/swift/serving.py ...

Without it swift says `template_type: 'qwen3_vl_coord' not in [...]` for a checkpoint of a run.
"""

from coord_trainer.swift.template import apply_coord_template_adapter

apply_coord_template_adapter()
