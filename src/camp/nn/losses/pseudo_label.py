"""Self-distillation with pseudo-labels (SimGCD, Wen et al., 2023)."""

from torch import Tensor

from camp.nn.losses.checks import check_temperature, check_views


def pseudo_label(logits: Tensor, teacher_temperature: float, student_temperature: float = 0.1) -> Tensor:
    """Compute L = 1/2B sum_i ( l(q_i', p_i) + l(q_i, p_i') ) with l(q, p) = -sum_k q^(k) log p^(k).

    p = softmax(logits / tau_s), and q = softmax(logits / tau_t) without gradient. The paper's
    -epsilon H term is `mean_entropy`.

    Args:
        logits: Logits (2, B, K) of two views; the loss is 0 for B = 0.
        teacher_temperature: tau_t.
        student_temperature: tau_s.
    """
    check_views("logits", logits)
    check_temperature(teacher_temperature)
    check_temperature(student_temperature)
    if logits.shape[1] == 0:
        return logits.sum()
    q = (logits.detach() / teacher_temperature).softmax(dim=-1)
    log_p = (logits / student_temperature).log_softmax(dim=-1)
    return -(q.flip(0) * log_p).sum(dim=-1).mean()


def teacher_temperature(epoch: int, start: float = 0.07, end: float = 0.04, warmup: int = 3) -> float:
    """Return tau_t of `epoch` (from 0): `warmup` evenly spaced values from `start` to `end`, then `end`.

    >>> [round(teacher_temperature(epoch), 3) for epoch in range(5)]
    [0.07, 0.055, 0.04, 0.04, 0.04]
    """
    if epoch < 0 or warmup < 0:
        raise ValueError(f"Epoch and warm-up must not be negative, but are {epoch} and {warmup}.")
    if epoch >= warmup:
        return end
    return start + (end - start) * epoch / max(warmup - 1, 1)
