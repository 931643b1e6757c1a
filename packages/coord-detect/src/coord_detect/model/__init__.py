"""A model on disk: its folder, its card, its prompt, and what it computes."""
