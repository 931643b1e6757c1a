"""Three steps of TRL's GRPO with the plug-in of the guide: MODEL FOLDER; the folder has rows.json and coord_trl.py."""

import json
import sys
from pathlib import Path

from datasets import Dataset, Image
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer

model, folder = sys.argv[1], Path(sys.argv[2])
sys.path.insert(0, str(folder))
import coord_trl  # noqa: E402

GRPOConfig.max_epochs = None  # ms-swift, loaded in this process before, has every training asked for it
rows = json.loads((folder / "rows.json").read_text())
processor = AutoProcessor.from_pretrained(model)
processor.tokenizer.padding_side = "left"
table = {
    "prompt": [[{"role": "user", "content": prompt}] for _, prompt, _ in rows],
    "image": [image for image, _, _ in rows],
    "solution": [target for _, _, target in rows],
}
reward = coord_trl.coord_f1(processor.tokenizer)
placeholders = processor.tokenizer.convert_tokens_to_ids(["<|image_pad|>", "<|video_pad|>", "<|vision_start|>"])
steps = []


def kept(**columns):
    steps.append(reward(**columns))
    return steps[-1]


GRPOTrainer(
    model=AutoModelForImageTextToText.from_pretrained(model),
    processing_class=processor,
    reward_funcs=kept,
    train_dataset=Dataset.from_dict(table).cast_column("image", Image()),
    args=GRPOConfig(
        output_dir=str(folder / "out"),
        num_generations=4,
        per_device_train_batch_size=4,
        max_steps=3,
        max_completion_length=16,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        # A model with random weights would sample the placeholder of an image.
        generation_kwargs={"suppress_tokens": placeholders},
    ),
).train()
target = rows[0][2]
ids = [*processor.tokenizer(target)["input_ids"], processor.tokenizer.eos_token_id]
right = reward(completion_ids=[ids], solution=[target])
(folder / "rewards.json").write_text(json.dumps({"steps": steps, "right": right}))
