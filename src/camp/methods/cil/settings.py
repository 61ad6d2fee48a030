"""Settings of the methods for class-incremental learning; free of torch for the command line."""

from dataclasses import dataclass, field, replace
from typing import Literal

from camp.core.errors import CampError
from camp.methods.settings import (
    IncrementalTraining,
    MethodSettings,
    check_not_negative,
    check_positive,
    check_share,
)

FACIL = IncrementalTraining(
    epochs=200,
    batch_size=64,
    optimizer="sgd",
    learning_rate=0.1,
    momentum=0.0,
    clip=10_000.0,
    schedule="plateau",
    lr_factor=3.0,
)
"""Training with the defaults of FACIL (Masana et al., TPAMI 2022), mmasana/FACIL, main_incremental.py."""
PYCIL = IncrementalTraining(
    epochs=101,
    batch_size=64,
    optimizer="adam",
    learning_rate=1e-3,
    clip=None,
    weight_decay=2e-4,
    schedule="step",
)
"""Training of PASS and IL2A in PyCIL (Zhou et al., SCIS 2023), G-U-N/PyCIL, exps/pass.json and exps/il2a.json."""


@dataclass(frozen=True)
class IncrementalSettings(MethodSettings):
    """Settings that all methods of class-incremental learning share."""

    training: IncrementalTraining = field(default_factory=lambda: FACIL)


@dataclass(frozen=True)
class EwcSettings(IncrementalSettings):
    """Fine-tune with elastic weight consolidation."""

    ewc: float = 78.0
    """lambda, the weight of the penalty on moving important parameters (FACIL's 5000, see `cil/ewc.py`)."""
    fisher_kept: float = 0.5
    """a, the weight of earlier tasks in the Fisher information, from 0 to 1."""

    def __post_init__(self) -> None:
        check_share("fisher_kept", self.fisher_kept)
        check_not_negative("ewc, the weight of the penalty,", self.ewc)


@dataclass(frozen=True)
class LwfSettings(IncrementalSettings):
    """Fine-tune with distillation of predictions."""

    lwf: float = 1.0
    """lambda, the weight of distillation."""
    temperature: float = 2.0
    """Temperature of distillation."""

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        check_not_negative("lwf, the weight of distillation,", self.lwf)


@dataclass(frozen=True)
class PrototypeSettings(IncrementalSettings):
    """Settings of the methods that replay prototypes; the defaults are those of PASS and IL2A."""

    temperature: float = 0.1
    """Temperature of the logits in training."""
    feature_weight: float = 10.0
    """lambda_f, the weight of feature distillation."""
    prototype_weight: float = 10.0
    """lambda_p, the weight of the loss of old prototypes."""
    training: IncrementalTraining = field(default_factory=lambda: PYCIL)

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        check_not_negative("feature_weight", self.feature_weight)
        check_not_negative("prototype_weight", self.prototype_weight)


@dataclass(frozen=True)
class PassSettings(PrototypeSettings):
    """PASS with the hyperparameters of PyCIL."""


@dataclass(frozen=True)
class Il2aSettings(PrototypeSettings):
    """IL2A with the hyperparameters of its authors."""

    mixtures: int = 4
    """Number of mixtures of each image in a step."""
    semantic_strength: float = 2.5
    """lambda, the factor of the covariances in the semantic augmentation."""
    norms: Literal["own", "shared", "frozen"] = "shared"
    """Statistics of batch norms from the second task on: `own` is the batch for the network in training and the running
    ones for the old network, as in the authors' code; `shared` the batch for both; `frozen` those of the first task for
    both."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mixtures < 1 or not self.semantic_strength >= 0:
            raise CampError("IL2A needs at least one mixture of each image, and a strength of at least 0.")


@dataclass(frozen=True)
class SsreSettings(PrototypeSettings):
    """SSRE with the hyperparameters of its authors."""

    feature_weight: float = 1.0
    """lambda_f, the weight of feature distillation, which is a sum over the images of a step."""
    training: IncrementalTraining = field(
        default_factory=lambda: replace(PYCIL, batch_size=128, weight_decay=5e-4)
    )


@dataclass(frozen=True)
class FetrilSettings(IncrementalSettings):
    """Training of the first task, and the support vector classifier."""

    svc: float = 1.0
    """C, the regularisation parameter of the support vector classifier; smaller values regularise more."""
    training: IncrementalTraining = field(
        default_factory=lambda: IncrementalTraining(
            epochs=200, optimizer="sgd", learning_rate=0.1, clip=None, weight_decay=5e-4, warmup_steps=0
        )
    )

    def __post_init__(self) -> None:
        check_positive("svc, the weight of errors,", self.svc)
