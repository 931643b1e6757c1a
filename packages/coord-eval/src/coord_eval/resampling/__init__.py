"""Draws the images anew: bootstrap intervals of every metric, and permutation tests of two runs."""
