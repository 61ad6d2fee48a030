"""Training from the equations alone: one image, one pair, one parameter at a time."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from trainer_parts import BATCH, DIM, LABELS, OWN, TRAINING, Parameters, Recording

from camp.data.bank.views import BankViews
from camp.methods.gccd.settings import CampSettings, GcdSettings
from camp.methods.settings import Training
from camp.nn.backbones.feature_scale import FEATURE_RMS


def slow_norm(x: Tensor) -> Tensor:
    """Every row with mean 0 and variance 1."""
    centred = x - x.mean(dim=1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(dim=1, keepdim=True) + 1e-5)


def slow_tip(p: Parameters, x: Tensor) -> Tensor:
    z = slow_norm(x)
    hidden = F.gelu(z @ p["tip.fc1.weight"].T + p["tip.fc1.bias"])
    gain = torch.tensor(FEATURE_RMS)  # a buffer in single precision
    return gain * slow_norm(z + hidden @ p["tip.fc2.weight"].T + p["tip.fc2.bias"])


def slow_network(p: Parameters, prefix: str, layers: list[int], between: Callable, x: Tensor) -> Tensor:
    for i, layer in enumerate(layers):
        x = p[f"{prefix}.{layer}.weight"] @ x + p[f"{prefix}.{layer}.bias"]
        x = between(x) if i + 1 < len(layers) else x
    return x


def slow_contrast(h: list[tuple[int, Tensor]], positive: Callable[[int, int], bool], tau: float) -> Tensor:
    """-1/n sum_i 1/|P_i| sum_{q in P_i} log(exp(h_i.h_q/tau) / sum_{n != i} exp(h_i.h_n/tau))."""
    unit = [value / value.norm() for _, value in h]
    total = torch.zeros((), dtype=torch.double)
    for i in range(len(h)):
        weight = {n: torch.exp(unit[i] @ unit[n] / tau) for n in range(len(h)) if n != i}
        chosen = [n for n in weight if positive(h[i][0], h[n][0])]
        denominator = sum(weight.values())
        total = total - sum(torch.log(weight[n] / denominator) for n in chosen) / len(chosen)
    return total / len(h)


def slow_ssl(p: Parameters, z: Tensor, tau_t: float, s: CampSettings) -> Tensor:
    """L_SimCLR + L_pseudo + epsilon (log K - H) over both views z (2, B, D) of all images of a step."""
    count = z.shape[1]
    h = [
        (b, slow_network(p, "objective.projector", [0, 2, 4], F.gelu, z[v, b]))
        for v in range(2)
        for b in range(count)
    ]
    l_simclr = slow_contrast(h, lambda a, b: a == b, s.simclr_temperature)
    logits = slow_logits(p, z)
    l_pseudo = torch.zeros((), dtype=torch.double)
    for b in range(count):
        for view, other in ((0, 1), (1, 0)):
            q = torch.softmax(logits[other][b].detach() / tau_t, dim=0)
            l_pseudo = l_pseudo - (q * torch.log_softmax(logits[view][b] / 0.1, dim=0)).sum() / (2 * count)
    mean = sum(torch.softmax(logits[v][b] / 0.1, dim=0) for v in range(2) for b in range(count)) / (2 * count)
    entropy = -(mean * mean.log()).sum()
    return l_simclr + l_pseudo + s.entropy_weight * (math.log(len(mean)) - entropy)


def slow_logits(p: Parameters, z: Tensor) -> list[list[Tensor]]:
    prototypes = [w / w.norm() for w in p["objective.prototypes.weight"]]
    return [[torch.stack([x / x.norm() @ w for w in prototypes]) for x in view] for view in z]


def slow_sl(p: Parameters, z: Tensor, labels: Tensor, s: CampSettings) -> Tensor:
    """L_SupCon + L_CE over both views z (2, B, D) of the labelled images of a step."""
    count = z.shape[1]
    h = [
        (b, slow_network(p, "objective.projector", [0, 2, 4], F.gelu, z[v, b]))
        for v in range(2)
        for b in range(count)
    ]
    l_supcon = slow_contrast(h, lambda a, b: bool(labels[a] == labels[b]), s.supcon_temperature)
    logits = slow_logits(p, z)
    l_ce = -sum(
        torch.log_softmax(logits[v][b] / 0.1, dim=0)[labels[b]] for v in range(2) for b in range(count)
    )
    return l_supcon + l_ce / (2 * count)


def slow_gcd(p: Parameters, z: Tensor, own: int, labels: Tensor, s: GcdSettings) -> Tensor:
    """(1 - beta) L_SimCLR on the images of the task + beta L_SupCon on the labelled ones, a head each."""
    heads = {
        "unsupervised": [(b, z[v, b]) for v in range(2) for b in range(own)],
        "supervised": [(b, z[v, own + b]) for v in range(2) for b in range(z.shape[1] - own)],
    }
    h = {
        head: [(b, slow_network(p, f"objective.{head}", [0, 2], torch.relu, x)) for b, x in members]
        for head, members in heads.items()
    }
    l_simclr = slow_contrast(h["unsupervised"], lambda a, b: a == b, s.simclr_temperature)
    l_supcon = slow_contrast(h["supervised"], lambda a, b: bool(labels[a] == labels[b]), s.supcon_temperature)
    return (1 - s.beta) * l_simclr + s.beta * l_supcon


def slow_mlp_distiller(p: Parameters, z: Tensor) -> Tensor:
    """phi over all views of a step z (n, D): the batch norm has their mean and variance."""
    hidden = torch.stack([p["distiller.0.weight"] @ x + p["distiller.0.bias"] for x in z])
    centred = hidden - hidden.mean(dim=0)
    variance = (centred**2).mean(dim=0)
    normed = centred / torch.sqrt(variance + 1e-5) * p["distiller.1.weight"] + p["distiller.1.bias"]
    return torch.stack([p["distiller.3.weight"] @ torch.relu(x) + p["distiller.3.bias"] for x in normed])


class SlowAdamW:
    """AdamW behind a clip of the global norm, one tensor after the other."""

    def __init__(self) -> None:
        self.m: Parameters = {}
        self.v: Parameters = {}
        self.t = 0
        self.clipped = False

    def step(self, p: Parameters, loss: Tensor, rate: float) -> Parameters:
        gradients = dict(zip(p, torch.autograd.grad(loss, list(p.values()), allow_unused=True)))
        gradients = {name: g if g is not None else torch.zeros_like(p[name]) for name, g in gradients.items()}
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        self.clipped |= norm > TRAINING.clip
        scale = min(1.0, TRAINING.clip / (norm + 1e-6))
        self.t += 1
        stepped = {}
        for name, g in gradients.items():
            g = g * scale
            self.m[name] = 0.9 * self.m.get(name, torch.zeros_like(g)) + 0.1 * g
            self.v[name] = 0.999 * self.v.get(name, torch.zeros_like(g)) + 0.001 * g**2
            m, v = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
            value = p[name].detach() * (1 - rate * TRAINING.weight_decay)
            stepped[name] = (value - rate * m / (v.sqrt() + 1e-8)).requires_grad_()
        return stepped


def reference_rates(training: Training, steps: int, warmup: int) -> list[list[float]]:
    """The reference's schedule by torch's own: warm-up each step, cosine each epoch once it is over."""
    parameter = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.AdamW([parameter], lr=training.learning_rate)
    linear = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1e-8, total_iters=warmup)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=training.epochs, eta_min=training.learning_rate * 1e-3
    )
    rates, done = [], 0
    for _ in range(training.epochs):
        rates.append([])
        for _ in range(steps):
            rates[-1].append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            linear.step()
            done += 1
        if done > warmup:
            cosine.step()
    return rates


def slow_epoch(
    p: Parameters, views: Recording, asked: list[tuple[Tensor, Tensor]], epoch: int, loss_of: Callable
) -> tuple[Parameters, SlowAdamW]:
    """The steps on the views that were `asked` for; `loss_of(p, z, x, own, labels)` is the loss of one."""
    optimizer = SlowAdamW()
    rates = reference_rates(TRAINING, len(asked), warmup=TRAINING.epochs * len(asked) // 10)
    for step, (rows, ids) in enumerate(asked):
        x = BankViews.augmented(views, rows, ids)["vector"].double()
        own = min(BATCH, OWN - step * BATCH)
        z = slow_tip(p, x).view(2, len(rows), DIM)
        p = optimizer.step(p, loss_of(p, z, x, own, LABELS[rows[own:]]), rates[epoch][step])
    return p, optimizer
