"""Export of a model to one ONNX file: pixels in, category out, in standard operators.

Use with onnxruntime, without CAMP:

    import json, numpy, onnxruntime
    from PIL import Image, ImageOps

    session = onnxruntime.InferenceSession("birds.onnx")
    about = session.get_modelmeta().custom_metadata_map
    names = {category["id"]: category["name"] for category in json.loads(about["categories"])}
    side = int(about["resolution"])
    image = ImageOps.exif_transpose(Image.open("heron.jpg")).convert("RGB")
    pixels = numpy.array(image.resize((side, side), Image.Resampling.BICUBIC))
    category, confidence = session.run(["category", "confidence"], {"pixels": pixels[None]})
    print(names.get(category[0], "unknown"), confidence[0])
"""

import json
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, helper

from camp.app.prediction.model import Model
from camp.core.errors import CampError
from camp.core.output_file import open_output
from camp.core.version import __version__
from camp.discovery.class_metric import ClassMetric
from camp.discovery.open_set import OpenSet
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.engine import OnnxEngine, TorchEngine
from camp.nn.backbones.onnx_tip import add_tip
from camp.nn.backbones.onnx_trunk import trunk_graph
from camp.nn.onnx.graph import Graph
from camp.nn.onnx.operators import inline_model

OPSET, IR_VERSION = 17, 8
"""The first version with a layer norm; runtimes since 2022 read it."""


def export_onnx(model: Model, path: Path) -> None:
    """Write trunk, tip, metric and centroids of `model` as one ONNX file.

    Input `pixels` (B, R, R, 3) uint8, RGB, or `vector` (B, D) float32 for a model over vectors. Outputs, as in
    `camp.app.prediction.predict.Prediction`:

        category              (B,) int64      permanent id, -1 for unknown
        confidence            (B,)            its probability; for unknown that of the nearest
        runner_up             (B,) int64      -1 where there is none; for unknown the nearest
        runner_up_confidence  (B,)            0 where there is none
        probabilities         (B, K)          in the order of `categories` in the metadata
        features              (B, D)

    The metadata say which categories there are and how an image is resized.
    """
    backbone = model.backbone
    graph = Graph()
    if backbone.resolution:
        name, dtype, shape = "pixels", TensorProto.UINT8, [backbone.resolution, backbone.resolution, 3]
        fields = _trunk(graph, backbone)
    else:
        name, dtype, shape = "vector", TensorProto.FLOAT, [backbone.dim]
        fields = {"vector": "vector"}
    z = add_tip(graph, backbone.tip, fields, backbone.resolution)
    points = _points(graph, z, model.metric)
    answers = {**_answers(graph, points, model.classifier, model.ids), "features": z}
    for output, value in answers.items():
        graph.nodes.append(helper.make_node("Identity", [value], [output]))
    types = {"category": TensorProto.INT64, "runner_up": TensorProto.INT64}
    sizes: dict[str, list[int]] = {"probabilities": [len(model.ids)], "features": [backbone.dim]}
    outputs = [
        helper.make_tensor_value_info(o, types.get(o, TensorProto.FLOAT), ["B", *sizes.get(o, [])])
        for o in answers
    ]
    inputs = [helper.make_tensor_value_info(name, dtype, ["B", *shape])]
    whole = helper.make_graph(graph.nodes, "camp", inputs, outputs, graph.weights)
    proto = helper.make_model(
        whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="camp"
    )
    helper.set_model_props(proto, _about(model))
    onnx.checker.check_model(proto, full_check=True)
    with open_output(path) as file:
        file.write(proto.SerializeToString())


def _trunk(graph: Graph, backbone: Backbone) -> dict[str, str]:
    """Add normalisation and trunk: uint8 pixels to the inputs of the tip."""
    x = graph.node("Cast", "pixels", to=TensorProto.FLOAT)
    x = graph.node("Div", graph.node("Transpose", x, perm=[0, 3, 1, 2]), torch.tensor(255.0))
    x = graph.node("Sub", x, torch.tensor(backbone.mean)[:, None, None])
    x = graph.node("Div", x, torch.tensor(backbone.std)[:, None, None])
    match backbone.trunk:
        case None:
            return {"pixels": x}
        case OnnxEngine() as engine:
            return inline_model(graph, engine.graph, {"pixels": x})
        case TorchEngine() as engine:
            return inline_model(graph, trunk_graph(engine.trunk, backbone.resolution), {"pixels": x})
    raise CampError(f"The trunk of {backbone.name} cannot be written as ONNX.")


def _points(graph: Graph, z: str, metric: ClassMetric) -> str:
    """Add the metric: features z (B, D) to points (B, d)."""

    def normalised(x: str) -> str:
        if not metric.unit:
            return x
        norm = graph.node("ReduceL2", x, axes=[1], keepdims=1)
        return graph.node("Div", x, graph.node("Max", norm, torch.tensor(1e-12)))

    x = normalised(graph.node("Sub", z, torch.from_numpy(metric.origin).float()))
    x = graph.node("MatMul", x, torch.from_numpy(metric.projection).float())
    return normalised(graph.node("Sub", x, torch.from_numpy(metric.offset).float()))


def _answers(graph: Graph, z: str, classifier: OpenSet, ids: tuple[int, ...]) -> dict[str, str]:
    """Add `OpenSet.answer` for points z (B, d), in ids."""
    # The difference itself, (B, K, d), as the shortcut through |z|^2 - 2 z.c loses the digits that decide.
    rows = graph.node("Unsqueeze", z, torch.tensor([1]))
    difference = graph.node("Sub", rows, classifier.centroids.float())
    square = graph.node("Mul", difference, difference)
    squares = graph.node("ReduceSum", square, torch.tensor([2]), keepdims=0)
    distances = graph.node("Sqrt", squares)
    logits = graph.node("Div", squares, torch.tensor(-float(classifier.temperature)))
    probabilities = graph.node("Softmax", logits, axis=1)

    def at(positions: str) -> tuple[str, str]:
        """Return ids (B,) and probabilities (B,) of categories (B, 1)."""
        probability = graph.node("GatherElements", probabilities, positions, axis=1)
        return flat(graph.node("Gather", torch.tensor(ids), positions)), flat(probability)

    def flat(x: str) -> str:
        return graph.node("Squeeze", x, torch.tensor([1]))

    def column(x: str, index: int) -> str:
        return graph.node("Gather", x, torch.tensor([index]), axis=1)

    count = min(2, len(ids))
    # TopK has two results, and `Graph.node` returns one.
    order = "nearest_positions"
    k = graph.weight(torch.tensor([count]))
    graph.nodes.append(
        helper.make_node("TopK", [distances, k], ["nearest_distances", order], axis=1, largest=0)
    )
    best = column(order, 0)
    relative = graph.node("Div", distances, classifier.radii.float())
    unknown = graph.node(
        "Greater", graph.node("ReduceMin", relative, axes=[1], keepdims=0), torch.tensor(1.0)
    )
    first, confidence = at(best)
    if count > 1:
        second, second_confidence = at(column(order, 1))
    else:
        second, second_confidence = graph.weight(torch.tensor([-1])), graph.weight(torch.tensor([0.0]))
    return {
        "category": graph.node("Where", unknown, torch.tensor([-1]), first),
        "confidence": confidence,
        "runner_up": graph.node("Where", unknown, first, second),
        "runner_up_confidence": graph.node("Where", unknown, confidence, second_confidence),
        "probabilities": probabilities,
    }


def _about(model: Model) -> dict[str, str]:
    """Return the metadata of the file."""
    categories = [{"id": id, "name": model.titles[i]} for i, id in enumerate(model.ids)]
    about = {
        "camp_version": __version__,
        "backbone": model.backbone.name,
        "categories": json.dumps(categories, ensure_ascii=False),
        "unknown": "-1",
    }
    if model.backbone.resolution:
        about["resolution"] = str(model.backbone.resolution)
        about["resize"] = (
            "upright by EXIF, bicubic to resolution x resolution pixels, aspect ratio not kept, RGB 0..255"
        )
    return about
