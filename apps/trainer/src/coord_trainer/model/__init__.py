"""Models: loads or builds a model with its processor and vocabulary, from a configuration or a checkpoint on disk."""
