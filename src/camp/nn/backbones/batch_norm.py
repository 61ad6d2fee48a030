"""Batch norm over the images of all processes of a distributed run."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from camp.core import distributed


class BatchNorm(nn.BatchNorm2d):
    """`nn.BatchNorm2d` whose training statistics are those of the whole batch, over all processes.

    Unlike `nn.SyncBatchNorm` it also runs on the CPU. It needs one collective operation in the
    forward and one in the backward pass.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C, H, W) to the same shape."""
        if not self.training or distributed.world_size() == 1:
            return super().forward(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        mean, variance, count = _statistics(x.detach())
        with torch.no_grad():
            assert self.momentum is not None
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1).clamp_min(1)), self.momentum)
        apply: Callable[..., Tensor] = _Normalise.apply
        return apply(x, self.weight, self.bias, mean, variance, count, self.eps)


def freeze_statistics(network: nn.Module, inputs: object = None) -> None:
    """Set the batch norms of a network to evaluation mode; it can be a forward pre-hook of the network."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


def use_batch_statistics(network: nn.Module) -> None:
    """Let the batch norms of a network normalise by each batch, without a change of their running statistics."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
            module.momentum = 0.0


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean (C,), variance (C,) and count (1,) over all images and positions; a shard may be empty."""
    rows = x.movedim(1, -1).flatten(0, 2)  # (n, C), a view where channels come last
    rows = rows.to(torch.promote_types(x.dtype, torch.float32))
    ones = rows.new_ones(1, len(rows))  # a matrix product is faster than a sum
    sums = distributed.all_reduce_sum(
        torch.cat([ones @ rows, ones @ rows.square(), ones.sum().expand(1, 1)], dim=1)[0]
    )
    count = sums[-1:]
    mean, squares = sums[:-1].view(2, -1) / count
    return mean, (squares - mean.square()).clamp_min(0), count


class _Normalise(torch.autograd.Function):
    """y = w (x - mean) / (variance + eps)^1/2 + b with mean and variance over all processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance, count)
        ctx.eps = eps
        return torch.native_batch_norm(x, weight, bias, mean, variance, False, 0.0, eps)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """dx = w / s (dy - mean(dy) - x^ mean(x^ dy)) with x^ = (x - mean) / s, the means over all processes.

        The sums of x^ dy and of dy over the shard are the gradients of w and b of this process.
        """
        x, weight, mean, variance, count = ctx.saved_tensors
        dy, constant = gradients[0], (weight, mean, variance, None, None, False, ctx.eps)
        _, dw, db = torch.ops.aten.native_batch_norm_backward(dy, x, *constant, [False, True, True])
        by_x, by_one = (distributed.all_reduce_sum(torch.cat([dw, db])) / count).view(2, -1)
        scale = (variance + ctx.eps).rsqrt()
        slope = -weight * scale.square() * by_x
        offset = -weight * scale * by_one - slope * mean
        dx = torch.addcmul(offset[:, None, None], x, slope[:, None, None])
        dx = torch.addcmul(dx, dy, (weight * scale)[:, None, None])
        return dx.to(x), dw, db, None, None, None, None
