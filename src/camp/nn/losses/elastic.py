"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017)."""

from collections.abc import Mapping

from torch import Tensor


def elastic(
    parameters: Mapping[str, Tensor], anchors: Mapping[str, Tensor], fisher: Mapping[str, Tensor]
) -> Tensor:
    """Compute L_EWC = 1/2 sum_i F_i (theta_i - theta*_i)^2 over the parameters named in `fisher`.

    Args:
        parameters: Parameters theta by name.
        anchors: Parameters theta* after the previous task.
        fisher: Diagonal of the Fisher information F.
    """
    terms = [(fisher[name] * (parameters[name] - anchors[name]).square()).sum() for name in fisher]
    return sum(terms[1:], terms[0]) / 2
