"""GCD+ER: GCD with experience replay (Riemer et al., ICLR 2019).

Random labelled images of each known class are kept and added to the labelled batches of later tasks, so that SupCon
continues to separate earlier classes. Nothing else is done against forgetting.
"""

from dataclasses import replace

from camp.methods.base import BuildContext
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.gccd.gcd import gcd_parts
from camp.methods.gccd.settings import GcdErSettings


def make_gcd_er(context: BuildContext, settings: GcdErSettings) -> CentroidMethod:
    """Make GCD with an exemplar memory."""
    return CentroidMethod(context, replace(gcd_parts(settings), exemplars=settings.exemplars))
