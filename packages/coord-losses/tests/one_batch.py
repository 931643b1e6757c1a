"""A batch by hand: twelve targets, eight or nine of them coordinates, and two objects of two images."""

import torch

from coord_codec import CoordGrid, CoordVocab
from coord_losses import ObjectSlots

F64 = torch.float64
VOCAB = CoordVocab(first_id=20, grid=CoordGrid(bins=50, scale=50))
V, H = 75, 6
TARGETS = torch.tensor([3, 20, 25, 40, 69, 4, 74, 21, 22, 60, 61, 30])
OBJECTS = ObjectSlots(
    rows_M4=torch.tensor([[1, 2, 3, 4], [7, 8, 9, 10]]),
    boxes_M4=torch.tensor([[0.003, 0.104, 0.4, 0.99], [0.02, 0.04, 0.8, 0.82]], dtype=F64),
    image_M=torch.tensor([0, 1]),
)
