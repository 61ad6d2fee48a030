"""GCD+FD: GCD with feature distillation (the paper's supplement C).

    L = (1 - alpha) L_GCD + alpha L_FD,   L_FD = |F^t(x) - F^{t-1}(x)|^2      from the second task on

on the images of the task, treated as unlabelled, summed over their two views as in the paper's code. Features must
stay where they were; CAMP's distiller keeps them only up to a learned projection.
"""

from dataclasses import replace

from camp.methods.base import BuildContext
from camp.methods.distillation import Distillation
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.gccd.gcd import gcd_parts
from camp.methods.gccd.settings import GcdFdSettings


def make_gcd_fd(context: BuildContext, settings: GcdFdSettings) -> CentroidMethod:
    """Make GCD with the identity as distiller."""
    distillation = Distillation(settings.alpha, kind="mse", data="task", views="sum")
    parts = replace(gcd_parts(settings), distiller="fd", distillation=distillation)
    return CentroidMethod(context, parts)
