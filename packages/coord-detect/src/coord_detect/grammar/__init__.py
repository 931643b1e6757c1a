"""The grammar of well-formed answers: as a `LogitsProcessor` for transformers, and as text that servers compile."""
