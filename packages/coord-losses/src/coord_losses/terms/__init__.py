"""One formula a file: logits, distributions or boxes go in, a `LossTerm` (or a differentiable value) comes out."""
