"""torch's `varlen_attn`, which needs a GPU, written out: the softmax of each sample in float32 or better."""

from itertools import pairwise

import torch


def naive_varlen_attn(q_THD, k_TGD, v_TGD, bounds_q, bounds_k, max_q, max_k, *, scale, window_size):
    bounds = bounds_q.tolist()
    assert bounds_q.dtype == torch.int32 and bounds_k.tolist() == bounds and bounds[-1] == len(q_THD)
    assert max_q == max_k == max(end - start for start, end in pairwise(bounds))
    attended = []
    for start, end in pairwise(bounds):
        q, k, v = (x[start:end].to(torch.promote_types(x.dtype, torch.float32)) for x in (q_THD, k_TGD, v_TGD))
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        scores_HLL = torch.einsum("qhd,khd->hqk", q, k) * scale
        if window_size == (-1, 0):
            scores_HLL = scores_HLL.masked_fill(torch.ones_like(scores_HLL[0]).triu(1).bool(), -torch.inf)
        attended.append(torch.einsum("hqk,khd->qhd", scores_HLL.softmax(-1), v).to(q_THD.dtype))
    return torch.cat(attended)
