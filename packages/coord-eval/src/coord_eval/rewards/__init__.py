"""Rewards for reinforcement learning: one number in [0, 1] for each answer, from the parser and matching of `score`."""

from coord_eval.rewards.judged import JudgedAnswers, Truth, judge
from coord_eval.rewards.kinds import REWARDS, Reward, register_reward, reward_table
from coord_eval.rewards.reward import RewardedAnswer, box_reward

__all__ = [
    "REWARDS",
    "JudgedAnswers",
    "Reward",
    "RewardedAnswer",
    "Truth",
    "box_reward",
    "judge",
    "register_reward",
    "reward_table",
]
