"""CAMP: Category Adaptation Meets Projected distillation (Rypeść et al., ECCV 2024).

    L_SSL = L_SimCLR + L_pseudo          on every image of the step
    L_SL  = L_SupCon + L_CE              on the labelled ones
    L     = (1 - alpha) ((1 - beta) L_SSL + beta L_SL) + alpha L_KD,   L_KD = |phi(F^t(x)) - F^{t-1}(x)|^2

then semi-supervised k-means, and psi carries the centroids of earlier tasks into the new feature space.

Where every image has a label (class-incremental learning) the paper removes L_SSL and sets alpha to 0.9. What is left of
the bracket is L_SL: beta, which weighs it against L_SSL, is 1 there, so that the weights of L_SL and L_KD are 0.1 and 0.9.
In the ablation of the paper (`--no-self-supervised` where some images have no label) L_SSL is 0 and L_SL keeps beta.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from camp.core.errors import CampError
from camp.methods.base import BuildContext
from camp.methods.distillation import Distillation
from camp.methods.gccd.adaptation import LearnedAdapter
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.simgcd import SimgcdObjective
from camp.methods.settings import SimgcdLosses, check_exemplars, check_share
from camp.nn.adapters import AdapterSettings


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


def make_camp(context: BuildContext, settings: CampSettings) -> CentroidMethod:
    """Make CAMP."""
    return CentroidMethod(context, camp_parts(settings))


def camp_parts(settings: CampSettings) -> Composition:
    """Return the components of CAMP: its objective, the projected distiller and the linear adapter."""
    alpha = settings.alpha if settings.alpha is not None else (0.1 if settings.exemplars else 0.5)
    adapter = LearnedAdapter(settings.adapter, settings.adaptation) if settings.adapter != "none" else None
    return Composition(
        objective=lambda sizes, generator: SimgcdObjective(
            settings,
            sizes.dim,
            sizes.total(),
            generator,
            supervised=settings.supervised,
            self_supervised=settings.self_supervised is not False,
        ),
        training=settings.training,
        distiller=settings.distiller,
        distillation=Distillation(alpha, settings.distill_loss, data="all", views="mean"),
        discovery=settings.discovery,
        adapter=adapter,
        exemplars=settings.exemplars,
    )
