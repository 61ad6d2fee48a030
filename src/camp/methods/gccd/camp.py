"""CAMP: Category Adaptation Meets Projected distillation (Rypeść et al., ECCV 2024).

    L_SSL = L_SimCLR + L_pseudo          on every image of the step
    L_SL  = L_SupCon + L_CE              on the labelled ones
    L     = (1 - alpha) ((1 - beta) L_SSL + beta L_SL) + alpha L_KD,   L_KD = |phi(F^t(x)) - F^{t-1}(x)|^2

then semi-supervised k-means, and psi carries the centroids of earlier tasks into the new feature space.

Where every image has a label (class-incremental learning) the paper removes L_SSL and sets alpha to 0.9. What is left of
the bracket is L_SL: beta, which weighs it against L_SSL, is 1 there, so that the weights of L_SL and L_KD are 0.1 and 0.9.
In the ablation of the paper (`--no-self-supervised` where some images have no label) L_SSL is 0 and L_SL keeps beta.
"""

from camp.methods.base import BuildContext
from camp.methods.distillation import Distillation
from camp.methods.gccd.adaptation import LearnedAdapter
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.settings import CampSettings
from camp.methods.gccd.simgcd import SimgcdObjective


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
