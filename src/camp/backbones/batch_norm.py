"""Batch norm over the pictures of all processes that train together."""

import torch
from torch import Tensor, nn

from camp import world


class BatchNorm(nn.BatchNorm2d):
    """torch's, whose statistics in training are those of the whole batch, however many processes share it.

    torch's own synchronised one runs on CUDA alone.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> the same shape."""
        if not self.training or world.size() == 1:
            return super().forward(x)
        mean, variance, count = _statistics(x)
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.momentum is not None
            assert self.num_batches_tracked is not None
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1).clamp_min(1)), self.momentum)
        scale = self.weight * (variance + self.eps).rsqrt()
        shift = self.bias - mean * scale
        return torch.addcmul(shift[:, None, None], x, scale[:, None, None])


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (C,), variance (C,) and count (1,) over all pictures and positions; a share may be empty.

    The mean comes first: sums of squares around another point would lose digits.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    count = x.new_tensor([x.numel() // x.shape[1]])
    sums = world.summed(torch.cat([x.sum(dim=(0, 2, 3)), count]))
    mean, count = sums[:-1] / sums[-1], sums[-1:].detach()
    squares = (x - mean[:, None, None]).square().sum(dim=(0, 2, 3))
    return mean, world.summed(squares) / count, count
