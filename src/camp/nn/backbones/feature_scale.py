"""The scale of features, which gives the weights of losses on features their meaning.

Contrastive losses and cosine classifiers do not depend on the scale of features, but L_KD, a squared
difference of features, does. Its weight alpha therefore means the same trade-off only for features of
the same scale. The paper's weights are for DINO, whose final norm has a learned gain.
"""

from typing import Any

import torch
from torch import Tensor, nn

FEATURE_RMS = 4.8
"""Root mean square of features of pretrained backbones without a learned final norm.

It is that of the published entries of DINO's normalised tokens: the nine of `facebook/dino-vits8` in the
tests of Hugging Face's transformers (test_inference_interpolate_pos_encoding), the first of which are
4.2340, 4.3906 and -6.6692.
"""


class ScaledTip(nn.Module):
    """A tip whose features have a fixed scale, which is saved with its weights."""

    gain: Tensor
    input_rms: Tensor

    def __init__(self, gain: float = FEATURE_RMS, input_rms: float = 1.0) -> None:
        """Make the tip: its input is divided by `input_rms`, and its features are multiplied by `gain`."""
        super().__init__()
        self.register_buffer("gain", torch.tensor(gain))
        self.register_buffer("input_rms", torch.tensor(input_rms))

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Read files of version 0.1.0, which have no scales, as 1."""
        for name in ("gain", "input_rms"):
            state.setdefault(prefix + name, torch.ones(()))
        super()._load_from_state_dict(state, prefix, *args)
