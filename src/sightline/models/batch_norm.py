"""Batch norm over rows of which there may be one, or none."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of rows (N, d). One row has no variance: in training too, it is normalised by what was seen before."""

    def forward(self, input: Tensor) -> Tensor:
        """The rows, normalised."""
        if self.training and len(input) < 2:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(input)
