"""Reinforcement learning from rewards for boxes: where it starts, what it samples, what it is rewarded for."""
