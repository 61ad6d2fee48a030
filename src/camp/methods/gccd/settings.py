"""Settings of the methods for generalized continual category discovery; free of torch for the command line."""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from camp.core.errors import CampError
from camp.methods.settings import (
    ContrastiveSettings,
    Discovery,
    MethodSettings,
    SimgcdLosses,
    SupConSettings,
    Training,
    check_exemplars,
    check_not_negative,
    check_positive,
    check_share,
)
from camp.nn.adapters.settings import AdapterSettings

FACIL_STRENGTH = 5000.0
"""Method gcd-ewc: lambda for squared mean gradients of batches."""


@dataclass(frozen=True)
class FrozenSettings(MethodSettings):
    """Settings of discovery alone."""

    discovery: Discovery = field(default_factory=Discovery)


@dataclass(frozen=True)
class GcdSettings(SupConSettings):
    """GCD with the hyperparameters of the paper's code."""


@dataclass(frozen=True)
class GcdEwcSettings(ContrastiveSettings):
    """GCD with a classifier and elastic weight consolidation."""

    ewc: float | None = None
    """lambda, the weight of the penalty on moving important parameters; by default 5000 / batch size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ewc is not None:
            check_not_negative("ewc, the weight of the penalty,", self.ewc)

    @property
    def strength(self) -> float:
        """lambda, given or by default."""
        return FACIL_STRENGTH / self.training.batch_size if self.ewc is None else self.ewc


@dataclass(frozen=True)
class GcdFdSettings(GcdSettings):
    """GCD with feature distillation."""

    alpha: float = 0.5
    """Weight of feature distillation, from 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("alpha", self.alpha)


@dataclass(frozen=True)
class GcdErSettings(GcdSettings):
    """GCD with an exemplar memory."""

    exemplars: int = 20
    """Number of labelled images of each known class that are kept for later tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exemplars(self.exemplars)


@dataclass(frozen=True)
class MetaGcdSettings(SupConSettings):
    """MetaGCD under the protocol of the other methods."""

    neighbour_weight: float = 0.5
    """w, the weight of the soft neighbourhood loss in L_in and of SupCon in L_out, from 0 to 1."""
    neighbour_threshold: float = 0.85
    """Smallest cosine of two images that count as neighbours."""
    session_rate: float = 1e-4
    """Largest learning rate of SGD in the tasks after the first."""
    sessions: int = 4
    """S, the number of simulated sessions of an episode."""
    episodes: int | None = None
    """Number of episodes of meta-training after the first task; by default as many as a task has epochs."""
    inner_steps: int = 1
    """Number of gradient steps of the adaptation to a simulated session."""
    inner_rate: float = 1e-4
    """a, the learning rate of the adaptation to a simulated session."""
    outer_rate: float = 1e-5
    """Learning rate of meta-training."""
    first_order: bool = False
    """Leave out the second derivatives of L_in, which is faster, but not the gradient of L_meta."""
    exemplars: int = 0
    """Number of labelled images of each known class that are kept for later tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("neighbour_weight", self.neighbour_weight)
        if not -1 <= self.neighbour_threshold <= 1:
            raise CampError(
                f"neighbour_threshold is a cosine between -1 and 1, and {self.neighbour_threshold} is not."
            )
        if self.sessions < 1 or self.inner_steps < 1:
            raise CampError("An episode needs at least one session, and a session at least one inner step.")
        if self.episodes is not None and self.episodes < 0:
            raise CampError(f"The number of episodes cannot be negative, and {self.episodes} is.")
        for name in ("session_rate", "inner_rate", "outer_rate"):
            check_positive(name, getattr(self, name))
        check_exemplars(self.exemplars)

    @property
    def num_episodes(self) -> int:
        """Number of episodes of meta-training."""
        return self.training.epochs if self.episodes is None else self.episodes


@dataclass(frozen=True)
class SimgcdSettings(SimgcdLosses):
    """SimGCD with the hyperparameters of the paper's code."""

    prototypes: Literal["task", "all"] = "task"
    """Prototypes that the losses of a task use: those of its own categories, or all so far (as the paper's code)."""


@dataclass(frozen=True)
class PaSettings(MethodSettings):
    """Proxy anchors with the hyperparameters of the paper's code."""

    alpha: float = 0.5
    """Weight of feature distillation, from 0 to 1."""
    scale: float = 32.0
    """mu, the scale of the loss; larger values give more weight to hard images."""
    margin: float = 0.1
    """delta, the margin of the cosines."""
    proxy_rate: float = 100.0
    """Learning rate of the proxies as a multiple of the tip's."""
    exemplars: int = 20
    """Number of labelled images of each known class that are kept for later tasks."""
    labelled_views: Literal["augmented", "clean"] = "augmented"
    """Views of a labelled image that the loss is computed on: two augmented ones, or the clean one."""
    training: Training = field(default_factory=lambda: Training(learning_rate=1e-4, batch_size=256))
    discovery: Discovery = field(default_factory=Discovery)

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_positive("scale", self.scale)
        check_not_negative("margin, the margin of the cosines,", self.margin)
        check_positive("proxy_rate", self.proxy_rate)
        check_exemplars(self.exemplars)


@dataclass(frozen=True)
class IgcdSettings(SimgcdLosses):
    """IGCD with the hyperparameters of its authors."""

    exemplars: int = 20
    """Number of images of each category in the support set, which is kept for later tasks."""
    neighbours: int = 10
    """k, the number of nearest neighbours by which the density around an image is measured."""
    snn_temperature: float = 0.1
    """tau, the temperature of the soft nearest neighbours."""
    snn_weight: float = 0.2
    """w, the weight of L_SNN."""
    rampup: float = 0.5
    """R, the part of the epochs in which the weight of L_SNN grows, from 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exemplars(self.exemplars, least=1)
        check_positive("neighbours", self.neighbours)
        check_positive("snn_temperature", self.snn_temperature)
        check_share("rampup", self.rampup)


@dataclass(frozen=True)
class GmSettings(ContrastiveSettings):
    """Grow and Merge under the protocol of the other methods."""

    merge: float | None = None
    """m, the weight of the static branch when the branches are merged; by default t / (t + 1), the mean over tasks."""
    alpha: float = 0.5
    """Weight of feature distillation from the static branch, from 0 to 1."""
    neighbours: int = 5
    """Number of nearest neighbours in the batch that are candidates for positive pairs."""
    exemplars: int = 0
    """Number of labelled images of each known class that are kept for later tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("merge", self.merge)
        check_share("alpha", self.alpha)
        check_exemplars(self.exemplars)
        if self.neighbours < 1:
            raise CampError(f"neighbours counts images and must be at least 1, not {self.neighbours}.")


@dataclass(frozen=True)
class CampSettings(SimgcdLosses):
    """CAMP with the hyperparameters of the paper."""

    alpha: float | None = None
    """Weight of distillation, from 0 to 1; by default 0.5, with exemplars 0.1, and 0.9 where every image has a label."""
    supervised: bool = True
    """Train with the supervised losses L_SL; off for the ablation."""
    self_supervised: bool | None = None
    """Train with the self-supervised losses L_SSL; by default on, and off where every image has a label
    (class-incremental learning)."""
    distiller: Literal["none", "fd", "linear", "mlp", "trex"] = "mlp"
    """phi, the network that projects new features into the old feature space."""
    distill_loss: Literal["mse", "cosine"] = "mse"
    """Distance between projected and old features that distillation minimises."""
    adapter: Literal["none", "linear", "mlp", "trex", "sdc"] = "linear"
    """psi, the map that carries centroids of earlier tasks into the new feature space."""
    exemplars: int = 0
    """Number of labelled images of each known class that are kept for later tasks."""
    adaptation: AdapterSettings = field(default_factory=AdapterSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("alpha", self.alpha)
        check_exemplars(self.exemplars)
        if not self.supervised and self.self_supervised is False:
            raise CampError(
                "CAMP without the supervised and the self-supervised loss has nothing to learn from."
            )

    def after_training(self) -> tuple[str, ...] | None:
        """Return adapter and discovery; with exemplars, training depends on what was discovered before."""
        return None if self.exemplars else ("adapter", "adaptation", "discovery")

    def for_labelled_tasks(self) -> Self:
        """Return the settings with the paper's values for class-incremental learning where none were given."""
        alpha = 0.9 if self.alpha is None else self.alpha
        beta = (
            self.beta if self.self_supervised else 1.0
        )  # without L_SSL there is nothing to weigh L_SL against
        return replace(self, alpha=alpha, beta=beta, self_supervised=bool(self.self_supervised))


@dataclass(frozen=True)
class CampPlusSettings(CampSettings):
    """CAMP+; the settings of training act with --train alone."""

    train: bool = False
    """Train the tip as CAMP does before categories are discovered."""
    power_transform: bool = True
    """Take signed square roots of the features; off for the ablation."""
    shrinkage: float | None = None
    """s, the weight of the identity in the covariance, from 0 to 1; by default selected by cross-validation."""
    n_components: int | None = None
    """d, the number of principal components that are clustered; by default selected by cross-validation."""
    power: float | None = None
    """t, the exponent of the densities of categories; by default selected by cross-validation."""
    equal_widths: bool | None = None
    """Whether the densities of categories of few and of many images are equally wide; by default selected by
    cross-validation."""
    size_prior: bool = True
    """Predict the sizes of categories from those of the labelled classes; off for the ablation."""
    returning: bool = True
    """Recognise unlabelled images of earlier categories in streams where these return; off for the ablation."""
    start_factor: int = 2
    """Number of novel categories that the mixture starts with, relative to the number wanted."""

    def after_training(self) -> tuple[str, ...] | None:
        """Return None: training is not shared."""
        return None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("shrinkage", "power"):
            if (value := getattr(self, name)) is not None:
                check_positive(name, value)
        check_share("shrinkage", self.shrinkage)
        if self.exemplars and not self.train:
            raise CampError("CAMP+ keeps no images unless it trains: add --train, or leave out --exemplars.")
        if self.start_factor < 1:
            raise CampError(
                f"The mixture starts with at least the number wanted, not {self.start_factor} times it."
            )
        if self.n_components is not None and self.n_components < 1:
            raise CampError(f"Clustering needs at least one component, not {self.n_components}.")
        if self.adapter not in ("none", "linear"):
            raise CampError(f"CAMP+ adapts its scatter by a linear map or not at all, not by {self.adapter}.")
