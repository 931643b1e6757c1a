"""Measures greedy generation in boxes per second at the size of Qwen3-VL-2B: plain, with the grammar, and drafted.

    python benchmarks/gpu/generation.py [1 16 64] [--boxes 10] [--quick] [--device cpu]

The weights are random in bfloat16, and each sample has one image of 512 x 512. All answers have the same number of
tokens, ten for each box under the grammar; without it random answers contain no boxes, and tokens are divided by ten.
The prefill is also measured separately. Grammar and drafts are measured only if coord_detect is
installed. Passes of ours are captured as CUDA graphs on a GPU; plain and grammar go through transformers' `generate`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import torch
import typer
from geometry import END, IMAGE, MARKERS, PAD, QWEN3_VL_2B, TINY, WORDS, build, image_inputs, prompt
from measure import Device, DeviceOption, Quick, cost, machine, megabytes, note, release, tell

TOKENS_PER_BOX = 10
NAME = (WORDS, WORDS + 1)


@torch.inference_mode()
def main(
    batches: Annotated[list[int], typer.Argument(help="batch sizes")] = [1, 16, 64],  # noqa: B006
    boxes: Annotated[int, typer.Option(help="in each answer")] = 10,
    device: DeviceOption = Device.cuda,
    quick: Quick = False,
) -> None:
    """Measure greedy generation without and with the grammar."""
    print(machine(device))
    geometry, side = (TINY, 64) if quick else (QWEN3_VL_2B, 512)
    batches, boxes = ([1, 2], 2) if quick else (batches, boxes)
    model = build(geometry, device, torch.bfloat16).eval()
    try:
        from coord_detect.grammar.coord_grammar import CoordGrammar
        from coord_detect.grammar.served import AnswerForm
        from coord_detect.model.attention import attend_by_sample
        from coord_detect.model.patch_embedding import multiply_patches
        from coord_detect.speed.decode import Rules, decode
        from coord_detect.speed.forced import ForcedTokens
        from coord_detect.speed.passes import Passes
    except ImportError as error:
        note(f"no grammar: {error}")
        CoordGrammar = None
    else:
        words = tuple(range(WORDS, geometry.vocab.first_id))
        form = AnswerForm(geometry.vocab, MARKERS, None, None, min_objects=boxes, words=words, spelled=(NAME,))
        forced = ForcedTokens(form, END)
        multiply_patches(model)
        attend_by_sample(model)
        passes_of = Passes(model, PAD, fixed_shapes=device == "cuda")

    def rows() -> Iterator[list[object]]:
        for size in batches:
            ids_BT = torch.tensor([prompt(side)] * size, device=device)
            inputs = {
                "input_ids": ids_BT,
                "attention_mask": torch.ones_like(ids_BT),
                "mm_token_type_ids": (ids_BT == IMAGE).int(),
                **image_inputs(size, side, device),
            }
            inputs["pixel_values"] = inputs["pixel_values"].to(torch.bfloat16)

            def generate(new: int, processors: tuple = (), inputs: dict = inputs) -> torch.Tensor:
                return model.generate(
                    **inputs, max_new_tokens=new, min_new_tokens=new, do_sample=False, logits_processor=list(processors)
                )

            new = boxes * TOKENS_PER_BOX
            ways: dict[str, tuple[int, Callable[[], object]]] = {
                "prompt alone": (1, partial(generate, 1)),
                "plain": (new, partial(generate, new)),
            }
            passes = {"plain": new, "grammar": new}
            if CoordGrammar is not None:
                grammar = CoordGrammar(form, END, prompt_length=ids_BT.shape[1])
                found = generate(new, (grammar,))[:, ids_BT.shape[1] :]
                assert int((found == MARKERS[-1]).sum()) == size * boxes
                ways["grammar"] = (new, partial(generate, new, (grammar,)))

                for name, known in (("captured, grammar", ForcedTokens()), ("drafted", forced)):
                    drafted = partial(decode, passes_of, inputs, known, Rules(END, new, geometry.vocab), grammar)
                    passes[name], ways[name] = drafted().passes, (new, drafted)
            for name, (count, answer) in ways.items():
                note(f"generation: {name}, batch {size}")
                found = cost(answer, device, repeats=3, warm_up=1)
                per_second = f"{size * boxes / found.seconds:,.1f}" if count == new else ""
                yield [
                    size,
                    name,
                    f"{found.seconds:.3f}",
                    f"{found.seconds / count * 1e3:.1f}",
                    per_second,
                    f"{passes[name] / boxes:.1f}" if name in passes else "",
                    megabytes(found.extra_bytes),
                    f"{found.syncs / count:.1f}",
                ]
                release(device)

    tell(
        "batch | decoding | s | ms a token | boxes/s | passes a box | extra MB | host waits a token",
        rows(),
        f"{boxes} boxes of {TOKENS_PER_BOX} tokens, a prompt of {len(prompt(side))} tokens",
    )


if __name__ == "__main__":
    typer.run(main)
