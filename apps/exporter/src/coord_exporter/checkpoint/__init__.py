"""Reads checkpoint folders without loading them, and writes new ones from recipes for their tensors."""
