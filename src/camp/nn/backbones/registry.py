"""Build backbones from settings."""

from typing import Literal

import torch
from torch import nn

from camp.core.errors import CampError
from camp.data.views import Field
from camp.nn.backbones import conv_tiny, efficientnet, resnet, vit
from camp.nn.backbones.base import Backbone, fingerprint_of
from camp.nn.backbones.conv_tiny import ConvTiny
from camp.nn.backbones.engine import OnnxEngine, TorchEngine
from camp.nn.backbones.residual_mlp import ResidualMlp
from camp.nn.backbones.resnet import ResNet18
from camp.nn.backbones.settings import (
    DEFAULT_NAME,
    DEFAULT_TIP,
    FROM_SCRATCH,
    VIT_WEIGHTS,
    BackboneSettings,
    check_resolution,
)
from camp.nn.backbones.weights import State, infer_vit_shape, load_weights


def make_backbone(settings: BackboneSettings, generator: torch.Generator) -> Backbone:
    """Build a backbone; weights that are not pretrained are drawn from `generator`."""
    device = get_device(settings.device)
    if settings.backbone in FROM_SCRATCH:
        backbone = make_scratch(settings, generator)
    elif settings.weights == "random":
        if settings.backbone not in vit.SHAPES:
            raise CampError(f'Only a ViT can have "random" weights; name one of {", ".join(VIT_WEIGHTS)}.')
        shape = vit.SHAPES[settings.backbone]
        backbone = make_vit(settings, shape, vit.random_state(shape, generator), device)
        backbone.note = f"{backbone.name} had random weights."
    else:
        backbone = make_pretrained(settings, generator, device)
    backbone.tip.to(device)
    return backbone


def get_device(name: str) -> torch.device:
    """Return the device called `name`; raise an error if this machine does not have it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # the device "meta" exists, and holds no numbers
    # Torch raises these for devices it is not built with, does not find or does not support.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise CampError(f'There is no device "{name}" here ({reason}); "cpu" is always available.') from error
    return device


def make_scratch(settings: BackboneSettings, generator: torch.Generator) -> Backbone:
    """Build a backbone without a trunk, which is trained from scratch."""
    name = str(settings.backbone)
    tip: nn.Module
    mean, std, resolution = vit.MEAN, vit.STD, settings.resolution or 32
    if name == "embeddings":
        if settings.dim is None:
            raise CampError("The backbone embeddings needs dim, the length of its vectors.")
        dim, mean, std, resolution = settings.dim, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), 0
        tip = ResidualMlp(dim, hidden=dim, generator=generator, input_rms=settings.vector_rms or 1.0)
        field, description = Field("vector", (dim,), "exact"), f"embeddings {dim}"
    else:
        if name in resnet.WIDTHS:
            tip, dim = ResNet18(resolution, resnet.WIDTHS[name], generator), 8 * resnet.WIDTHS[name]
        else:
            resolution, mean, std = settings.resolution or 16, conv_tiny.MEAN, conv_tiny.STD
            tip, dim = ConvTiny(generator), conv_tiny.DIM
        field, description = Field("pixels", (3, resolution, resolution), "exact"), f"pixels {resolution}"
    return Backbone(name, dim, resolution, mean, std, (field,), None, tip, fingerprint_of(description))


def make_pretrained(settings: BackboneSettings, generator: torch.Generator, device: torch.device) -> Backbone:
    """Build a backbone with the given weights, or with the default weights of its name."""
    source = settings.weights
    if source is None:
        name = settings.backbone or DEFAULT_NAME
        source = efficientnet.packaged_weights() if name == DEFAULT_NAME else VIT_WEIGHTS[name]
    state = load_weights(source)
    if efficientnet.is_efficientnet(state):
        shape, found = None, DEFAULT_NAME
    else:
        shape = infer_vit_shape(state, source)
        found = shape.name
    if settings.backbone not in (None, found):
        raise CampError(
            f"The weights {source} are of {found}, not of {settings.backbone}; omit the name or give other weights."
        )
    if shape is not None:
        if settings.tip is not None:
            raise CampError(f"{found} has one tip; only {DEFAULT_NAME} has a choice of tips.")
        return make_vit(settings, shape, state, device)
    settings = settings.with_name(found)  # validates again, with the name known
    return make_efficientnet(settings, efficientnet.convert_names(state, source), generator, device)


def make_vit(settings: BackboneSettings, shape: vit.VitShape, state: State, device: torch.device) -> Backbone:
    """Build a ViT whose last `trained_blocks` blocks are the tip."""
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
    """Build EfficientNet-Lite0 with either tip."""
    resolution = check_resolution(settings.resolution or 224, efficientnet.STRIDE, efficientnet.NAME)
    tip: ResidualMlp | efficientnet.EfficientNetTip
    if (settings.tip or DEFAULT_TIP) == "mlp":
        trunk = efficientnet.split_pooled(state)
        tip = ResidualMlp(efficientnet.DIM, efficientnet.MLP_HIDDEN, generator)
        field = Field("vector", (efficientnet.DIM,), "exact")
    else:
        if settings.trained_blocks > efficientnet.BLOCKS:
            raise CampError(
                f"{efficientnet.NAME} has {efficientnet.BLOCKS} blocks; {settings.trained_blocks} cannot be trained."
            )
        trunk, tip, field = efficientnet.split_last(state, resolution, settings.trained_blocks)
    if device.type == "cuda":  # the format of tensor cores; activations follow the weights
        for network in (trunk, tip):
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
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


def run_on(
    trunk: nn.Module,
    resolution: int,
    names: tuple[str, ...],
    engine: Literal["auto", "torch", "onnxruntime"],
    device: torch.device,
) -> TorchEngine | OnnxEngine:
    """Return an engine that runs `trunk`, which computes the fields `names`, on `device`."""
    if engine == "onnxruntime" and device.type != "cpu":
        raise CampError(
            f'onnxruntime runs trunks on the CPU only; on {device} set the engine to "torch" or "auto".'
        )
    if engine == "torch" or device.type != "cpu":
        return TorchEngine(trunk, device)
    from camp.nn.backbones.onnx_trunk import trunk_graph  # imports onnx, which other backbones do without

    return OnnxEngine(trunk_graph(trunk, resolution), names, threads=torch.get_num_threads())
