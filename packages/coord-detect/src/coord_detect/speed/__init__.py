"""Faster answers: several tokens are drafted at once and verified in one forward pass."""
