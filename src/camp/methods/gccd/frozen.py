"""Frozen: the pretrained features as they are, without training.

Semi-supervised k-means in each task and the nearest centroid. The features do not change, so earlier categories
are only confused with later ones: the baseline that training has to beat.
"""

from camp.methods.base import BuildContext
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.settings import FrozenSettings
from camp.methods.settings import Training


def make_frozen(context: BuildContext, settings: FrozenSettings) -> CentroidMethod:
    """Make a method that discovers and classifies without training."""
    parts = Composition(objective=None, training=Training(epochs=0), discovery=settings.discovery)
    return CentroidMethod(context, parts)
