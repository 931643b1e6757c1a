"""Hidden states and a head's weight go in; cross-entropies, gates and coordinate logits come out, never all logits."""
