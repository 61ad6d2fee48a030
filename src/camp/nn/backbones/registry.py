"""From settings to a backbone."""

import torch

from camp.core.errors import CampError
from camp.data.views import Field
from camp.nn.backbones import conv_tiny, efficientnet, resnet, vit
from camp.nn.backbones.base import Backbone, fingerprint_of
from camp.nn.backbones.conv_tiny import ConvTiny
from camp.nn.backbones.embeddings import embeddings
from camp.nn.backbones.engine import run_on
from camp.nn.backbones.residual_mlp import ResidualMlp
from camp.nn.backbones.resnet import ResNet18
from camp.nn.backbones.settings import (
    DEFAULT_NAME,
    DEFAULT_TIP,
    VIT_WEIGHTS,
    BackboneSettings,
    check_resolution,
)
from camp.nn.backbones.weights import State, load_weights, vit_shape_of


def make_backbone(settings: BackboneSettings, generator: torch.Generator) -> Backbone:
    """The backbone that `settings` ask for; what has no pretrained weights is drawn from `generator`."""
    device = device_of(settings.device)
    if settings.backbone == "embeddings":
        if settings.dim is None:
            raise CampError("The backbone embeddings needs dim, the length of its vectors.")
        backbone = embeddings(settings.dim, generator)
    elif settings.backbone in (*resnet.WIDTHS, "conv-tiny"):
        backbone = from_scratch(settings.backbone, settings.resolution, generator)
    elif settings.weights == "random":
        if settings.backbone not in vit.SHAPES:
            raise CampError(f'Only a ViT can have "random" weights; name one of {", ".join(VIT_WEIGHTS)}.')
        shape = vit.SHAPES[settings.backbone]
        backbone = make_vit(settings, shape, vit.random_state(shape, generator), device)
        backbone.note = f"{backbone.name} had random weights."
    else:
        backbone = pretrained(settings, generator, device)
    backbone.tip.to(device)
    return backbone


def device_of(name: str) -> torch.device:
    """The device called `name`, if this machine has it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    # Torch's own words for "not built with it", "not here" and "not supported" are of these three kinds.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise CampError(f'There is no device "{name}" here ({reason}); "cpu" is always there.') from error
    return device


def from_scratch(name: str, resolution: int | None, generator: torch.Generator) -> Backbone:
    """A backbone without a trunk: all of it is trained."""
    tip: ResNet18 | ConvTiny
    if name in resnet.WIDTHS:
        resolution, width = resolution or 32, resnet.WIDTHS[name]
        tip, dim, mean, std = ResNet18(resolution, width, generator), 8 * width, vit.MEAN, vit.STD
    else:
        resolution = resolution or 16
        tip, dim, mean, std = ConvTiny(generator), conv_tiny.DIM, conv_tiny.MEAN, conv_tiny.STD
    return Backbone(
        name=name,
        dim=dim,
        resolution=resolution,
        mean=mean,
        std=std,
        fields=(Field("pixels", (3, resolution, resolution), "exact"),),
        trunk=None,
        tip=tip,
        fingerprint=fingerprint_of(f"pixels {resolution}"),
        note="",
    )


def pretrained(settings: BackboneSettings, generator: torch.Generator, device: torch.device) -> Backbone:
    """A backbone with the weights that are named, or else with those that belong to its name."""
    source = settings.weights
    if source is None:
        name = settings.backbone or DEFAULT_NAME
        source = efficientnet.packaged_weights() if name == DEFAULT_NAME else VIT_WEIGHTS[name]
    state = load_weights(source)
    if efficientnet.is_efficientnet(state):
        shape, found = None, DEFAULT_NAME
    else:
        shape = vit_shape_of(state, source)
        found = shape.name
    if settings.backbone not in (None, found):
        raise CampError(
            f"The weights {source} are of {found}, not of {settings.backbone}; leave the name out or give other weights."
        )
    if shape is not None:
        if settings.tip is not None:
            raise CampError(f"{found} has one tip; the choice of a tip is for {DEFAULT_NAME}.")
        return make_vit(settings, shape, state, device)
    settings = settings.with_name(found)  # checks again, now that the name is known
    return make_efficientnet(settings, efficientnet.our_layout(state, source), generator, device)


def make_vit(settings: BackboneSettings, shape: vit.VitShape, state: State, device: torch.device) -> Backbone:
    """A ViT cut before its last `trained_blocks`."""
    resolution = check_resolution(settings.resolution or 224, shape.patch, shape.name)
    depth, trained = shape.blocks if settings.depth is None else settings.depth, settings.trained_blocks
    if not 1 <= depth <= shape.blocks:
        raise CampError(f"{shape.name} has {shape.blocks} blocks and cannot be cut after block {depth}.")
    if trained > depth:
        raise CampError(
            f"{trained} trained blocks are more than the {depth} that {shape.name} keeps; train fewer."
        )
    trunk, tip = vit.split(state, shape, resolution, depth, trained)
    fields = vit.fields_of(shape, resolution)
    return Backbone(
        name=shape.name,
        dim=shape.dim,
        resolution=resolution,
        mean=vit.MEAN,
        std=vit.STD,
        fields=fields,
        trunk=run_on(trunk, resolution, tuple(field.name for field in fields), settings.engine, device),
        tip=tip,
        fingerprint=fingerprint_of(f"{shape.name} {resolution} normalised={trunk.normalised}", trunk),
        note="" if depth == shape.blocks else f"{shape.name} was cut after block {depth} of {shape.blocks}.",
    )


def make_efficientnet(
    settings: BackboneSettings, state: State, generator: torch.Generator, device: torch.device
) -> Backbone:
    """EfficientNet-Lite0 with either tip."""
    resolution = check_resolution(settings.resolution or 224, efficientnet.STRIDE, efficientnet.NAME)
    tip: ResidualMlp | efficientnet.EfficientNetTip
    if (settings.tip or DEFAULT_TIP) == "mlp":
        trunk = efficientnet.split_pooled(state)
        tip = ResidualMlp(efficientnet.DIM, efficientnet.MLP_HIDDEN, generator, normalised=True)
        field = Field("vector", (efficientnet.DIM,), "exact")
    else:
        if settings.trained_blocks > efficientnet.BLOCKS:
            raise CampError(
                f"{efficientnet.NAME} has {efficientnet.BLOCKS} blocks; {settings.trained_blocks} cannot be trained."
            )
        trunk, tip, field = efficientnet.split_last(state, resolution, settings.trained_blocks)
    return Backbone(
        name=efficientnet.NAME,
        dim=efficientnet.DIM,
        resolution=resolution,
        mean=efficientnet.MEAN,
        std=efficientnet.STD,
        fields=(field,),
        trunk=run_on(trunk, resolution, (field.name,), settings.engine, device),
        tip=tip,
        fingerprint=fingerprint_of(f"{efficientnet.NAME} {resolution} {field.name}", trunk),
        note=efficientnet.NOTE,
    )
