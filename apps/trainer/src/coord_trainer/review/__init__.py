"""Reviews annotations with a model: how likely its labels are, which records are wrong, and what to label next."""
