"""Models: a configuration or a checkpoint on disk goes in, a model with its processor and vocabulary comes out."""
