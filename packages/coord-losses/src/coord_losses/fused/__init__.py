"""Computes cross-entropies, gates and coordinate logits from hidden states and a head's weight, without all logits."""
