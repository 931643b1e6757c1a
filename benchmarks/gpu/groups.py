"""Compares cross-entropy with soft targets on a model too large for a CPU, in a plain loop without ms-swift.

    python benchmarks/gpu/groups.py [a soft] [--epochs 40] [--minutes 6] [--quick] [--device cpu]

A Qwen3-VL of about 30 M parameters is trained from random weights on 20,000 generated images of 224 x 224 with 1 to 12
shapes, with bfloat16 autocast and AdamW with a cosine schedule; coord_eval scores greedy answers to 500 other images.
Images are drawn on the device from the seed of their batch, so that batches are the same in every epoch. With
`--minutes` all groups get the same number of epochs, as many as fit by the time of the first steps.
"""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import torch
import typer
from geometry import IMAGE, MARKERS, MERGE, MILLIONS_30, PATCH, TINY, VISION_END, VISION_START, WORDS, answer, build
from measure import Device, DeviceOption, Quick, machine, note, tell
from step import head_replaced
from torch import Tensor

from coord_adapter import smooth_rows
from coord_codec import MARKERS as FAMILIES
from coord_codec import CoordVocab, find_layout, int_to_token
from coord_eval import score
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots, supervised_rows

COLOURS = {"red": (0.86, 0.16, 0.16), "green": (0.16, 0.75, 0.24), "blue": (0.2, 0.27, 0.86)}
SHAPES = ("circle", "square", "triangle")
NAMES = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
CELLS = 4
"""Cells per side of a square grid; objects are in different cells, so that none covers another."""
GROUPS = {"a": ObjectiveConfig.group_a(), "soft": ObjectiveConfig.soft(), "mixed": ObjectiveConfig.mixed()}
Group = StrEnum("Group", {name: name for name in GROUPS})


@dataclass(frozen=True)
class Images:
    """A batch of generated images and their objects, ordered by rows from the top left."""

    pixels_BCHW: Tensor
    boxes: list[Tensor]
    names: list[list[int]]


def draw(seed: int, count: int, size: int, most: int, device: str) -> Images:
    """Draw images of 1 to `most` shapes on noise; edges are antialiased, so that boxes need not end at pixels."""
    rng = torch.Generator(device).manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=rng, device=device)

    cell_BO = torch.rand(count, CELLS**2, generator=rng, device=device).argsort(1)[:, :most]
    side_BO2 = uniform(0.35, 0.95, count, most, 2) / CELLS
    corner_BO2 = torch.stack([cell_BO % CELLS, cell_BO // CELLS], 2) / CELLS
    corner_BO2 = corner_BO2 + uniform(0, 1, count, most, 2) * (1 / CELLS - side_BO2)
    boxes_BO4 = torch.cat([corner_BO2, corner_BO2 + side_BO2], 2)
    name_BO = torch.randint(0, len(NAMES), (count, most), generator=rng, device=device)
    number_B = torch.randint(1, most + 1, (count,), generator=rng, device=device)

    at = torch.arange(size, device=device) + 0.5
    x1, y1, x2, y2 = (size * boxes_BO4).unbind(2)

    def inside(from_BO: Tensor, to_BO: Tensor) -> Tensor:  # of each pixel's width [B, O, size]
        return (torch.minimum(at - from_BO[..., None], to_BO[..., None] - at) + 0.5).clamp(0, 1)

    across, down = inside(x1, x2)[:, :, None, :], inside(y1, y2)[..., None]
    centre_x, centre_y = ((a + b)[..., None] / 2 for a, b in ((x1, x2), (y1, y2)))
    half_x, half_y = ((b - a)[..., None] / 2 for a, b in ((x1, x2), (y1, y2)))
    dx, dy = ((at - centre_x) / half_x)[:, :, None, :], ((at - centre_y) / half_y)[..., None]
    radius = (dx.square() + dy.square()).sqrt()
    scale = torch.minimum(half_x, half_y)[..., None]
    circle = ((1 - radius) * scale + 0.5).clamp(0, 1)
    triangle = (((1 + dy) / 2 - dx.abs()) * scale + 0.5).clamp(0, 1) * down
    shapes = torch.stack([circle, across * down, triangle], 2)
    cover = shapes.gather(2, (name_BO % len(SHAPES))[..., None, None, None].expand(-1, -1, 1, size, size))[:, :, 0]
    cover = cover * (torch.arange(most, device=device) < number_B[:, None])[..., None, None]
    colours = torch.tensor(list(COLOURS.values()), device=device)[name_BO // len(SHAPES)]
    background = uniform(0.7, 0.98, count, 3)[..., None, None] * (1 - cover.sum(1, keepdim=True))
    pixels = background + torch.einsum("bohw,boc->bchw", cover, colours)
    pixels = pixels + 0.03 * torch.randn(pixels.shape, generator=rng, device=device)

    boxes_cpu, names_cpu, numbers = boxes_BO4.cpu(), name_BO.tolist(), number_B.tolist()
    boxes, names = [], []
    for boxes_O4, image_names, number in zip(boxes_cpu, names_cpu, numbers, strict=True):
        order = sorted(range(number), key=lambda o: (boxes_O4[o, 1].item(), boxes_O4[o, 0].item()))
        boxes.append(boxes_O4[order])
        names.append([image_names[o] for o in order])
    return Images((pixels - 0.5) / 0.5, boxes, names)


def patches(pixels_BCHW: Tensor) -> Tensor:
    """Return patches in the order that Qwen3-VL's vision tower expects."""
    images, channels, size, _ = pixels_BCHW.shape
    blocks = size // PATCH // MERGE
    x = pixels_BCHW.view(images, channels, blocks, MERGE, PATCH, blocks, MERGE, PATCH)
    x = x.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)
    return x.reshape(images * (size // PATCH) ** 2, channels * 2 * PATCH * PATCH)


class Task:
    """The sizes, prompt and positions that all groups share."""

    def __init__(self, quick: bool, device: str) -> None:
        self.device = device
        self.geometry = TINY if quick else MILLIONS_30
        self.size, self.most, self.batch = (64, 3, 4) if quick else (224, 12, 128)
        self.train, self.held_out = (16, 4) if quick else (20_000, 500)
        self.vocab: CoordVocab = self.geometry.vocab
        across = self.size // PATCH
        self.prompt = [VISION_START, *[IMAGE] * (across // MERGE) ** 2, VISION_END]
        self.longest = len(self.prompt) + 9 * self.most + 1
        self.grid_13 = torch.tensor([[1, across, across]], device=device)
        self.positions_3T: Tensor | None = None

    def inputs(self, model, ids_BT: Tensor, pixels_BCHW: Tensor) -> dict[str, Tensor]:
        """Return the inputs of the model; all samples start with the same prompt, so one row of positions is enough."""
        if self.positions_3T is None:
            ids_1T = torch.tensor([[*self.prompt, *[WORDS] * (self.longest - len(self.prompt))]], device=self.device)
            types = (ids_1T == IMAGE).int()
            found, _ = model.model.get_rope_index(ids_1T, mm_token_type_ids=types, image_grid_thw=self.grid_13)
            self.positions_3T = found[:, 0]
        rows, length = ids_BT.shape
        return {
            "input_ids": ids_BT,
            "mm_token_type_ids": (ids_BT == IMAGE).int(),
            "pixel_values": patches(pixels_BCHW),
            "image_grid_thw": self.grid_13.expand(rows, -1),
            "position_ids": self.positions_3T[:, None, :length].expand(-1, rows, -1),
        }

    def examples(self, images: Images) -> tuple[Tensor, Tensor, ObjectSlots]:
        """Return ids [B, T], labels [B, T] and objects; padding is at the end, where causal attention ignores it."""
        ids, labels = [], []
        for boxes_M4, names in zip(images.boxes, images.names, strict=True):
            target = answer(boxes_M4, [[WORDS + name] for name in names], self.vocab)
            padding = self.longest - len(self.prompt) - len(target)
            ids.append([*self.prompt, *target, *[0] * padding])
            labels.append([-100] * len(self.prompt) + target + [-100] * padding)
        layouts = [find_layout(row, self.vocab, markers=MARKERS) for row in labels]
        labels_BT = torch.tensor(labels)
        boxes = [boxes_M4.tolist() for boxes_M4 in images.boxes]
        slots = ObjectSlots.from_layouts(layouts, labels_BT, boxes, self.vocab)
        return torch.tensor(ids, device=self.device), labels_BT.to(self.device), slots.to(self.device)


def autocast(device: str):
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else nullcontext()


def train(task: Task, config: ObjectiveConfig, epochs: float, minutes: float, seed: int = 0):
    """Return the model, its epochs and the seconds of training; the epochs are reduced to fit into the minutes."""
    torch.manual_seed(seed)
    model = build(task.geometry, task.device, torch.float32).train()
    first = task.vocab.first_id
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        table[first : first + 1000] = smooth_rows(1000, table.shape[1], 0.02).to(table.device)
    objective = CoordObjective(config, task.vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.05, fused=True)
    batches = task.train // task.batch
    steps, start, step = max(1, round(epochs * batches)), time.perf_counter(), 0
    order, marks = torch.Generator().manual_seed(seed), []
    while step < steps:
        for number in torch.randperm(batches, generator=order).tolist():
            if step in (10, 30):
                if task.device == "cuda":
                    torch.cuda.synchronize()
                marks.append(time.perf_counter())
            if step == 30 and minutes:
                pace, left = (marks[1] - marks[0]) / 20, 60 * minutes - (marks[1] - start)
                steps = min(steps, step + int(left / pace))
            if step >= steps:
                break
            warmth = min(1, (step + 1) / 200)
            optimizer.param_groups[0]["lr"] = 1e-3 * warmth * (0.01 + 0.99 * (1 + math.cos(math.pi * step / steps)) / 2)
            images = draw(number, task.batch, task.size, task.most, task.device)
            ids_BT, labels_BT, slots = task.examples(images)
            loss = one_loss(task, model, objective, ids_BT, labels_BT, slots, images)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 500 == 0:
                note(f"  step {step} of {steps}: loss {loss.detach():.3f}, {time.perf_counter() - start:.0f} s")
    return model.eval(), step / batches, time.perf_counter() - start


def one_loss(task: Task, model, objective: CoordObjective, ids_BT, labels_BT, slots, images: Images) -> Tensor:
    def forward(hidden_BTH: Tensor) -> Tensor:
        hidden_NH, targets_N = supervised_rows(hidden_BTH, labels_BT)
        return objective.fused(hidden_NH, table_VH, targets_N, slots).total()[None, None]

    table_VH = model.get_output_embeddings().weight
    with autocast(task.device), head_replaced(model, forward):
        return model(**task.inputs(model, ids_BT, images.pixels_BCHW), use_cache=False).logits.sum()


@torch.inference_mode()
def evaluate(task: Task, model):
    """Generate answers to the held-out images and score them."""
    texts = dict(zip(MARKERS, FAMILIES["qwen"].tokens, strict=True))
    texts |= {WORDS + number: name for number, name in enumerate(NAMES)}
    texts |= {token: int_to_token(place) for place, token in enumerate(task.vocab.ids)}
    truth = {"images": [], "annotations": [], "categories": [{"id": i, "name": n} for i, n in enumerate(NAMES)]}
    records = []
    for start in range(0, task.held_out, 100):
        count = min(100, task.held_out - start)
        images = draw(10**6 + start, count, task.size, task.most, task.device)
        prompts = torch.tensor([task.prompt] * count, device=task.device)
        inputs = task.inputs(model, prompts, images.pixels_BCHW)
        del inputs["position_ids"]  # generate counts on by itself
        with autocast(task.device):
            out = model.generate(
                **inputs, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=9 * task.most + 1
            )
        for row, ids in enumerate(out[:, len(task.prompt) :].tolist()):
            image = start + row
            text = "".join(texts.get(token, "") for token in ids)
            records.append({"image_id": image, "text": text, "finish_reason": "stop"})
            truth["images"].append({"id": image, "file_name": f"{image}.png", "width": task.size, "height": task.size})
            for (x1, y1, x2, y2), name in zip(images.boxes[row].tolist(), images.names[row], strict=True):
                bbox = [side * task.size for side in (x1, y1, x2 - x1, y2 - y1)]
                number = len(truth["annotations"])
                truth["annotations"].append({"id": number, "image_id": image, "category_id": name, "bbox": bbox})
    return score(truth, records)


def main(
    groups: Annotated[list[Group], typer.Argument(help="losses to compare")] = [Group.a, Group.soft],  # noqa: B006
    epochs: Annotated[float, typer.Option(help="at most")] = 40,
    seeds: Annotated[int, typer.Option(min=1, help="runs of each group")] = 1,
    minutes: Annotated[float, typer.Option(help="of training in all; 0: no limit")] = 0,
    device: DeviceOption = Device.cuda,
    quick: Quick = False,
) -> None:
    """Train each group and score its answers."""
    print(machine(device))
    task = Task(quick, device)
    epochs = 1 if quick else epochs
    each = minutes / len(groups) / seeds

    def rows() -> Iterator[list[object]]:
        reached = None
        for seed in range(seeds):
            for name in groups:
                note(f"group {name}, seed {seed}")
                limit = each if reached is None else 0
                model, reached, seconds = train(task, GROUPS[name], reached or epochs, limit, seed)
                found = evaluate(task, model)
                figures = (found.coco["AP"], found.coco["AP50"], found.mean_iou, found.mean_iou_class_agnostic)
                parameters = sum(p.numel() for p in model.parameters())
                texts = (f"{parameters:,}", f"{reached:.1f}", f"{seconds:.0f}", *(f"{x:.3f}" for x in figures))
                yield [name, seed, *texts]

    tell(
        "group | seed | parameters | epochs | s of training | AP | AP50 | mean IoU | mean IoU, any label",
        rows(),
        f"{task.train:,} images of {task.size} x {task.size}, 1-{task.most} shapes",
    )


if __name__ == "__main__":
    typer.run(main)
