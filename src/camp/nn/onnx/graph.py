"""Builder of ONNX graphs."""

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

FUSED = "com.microsoft"
"""Operator domain of onnxruntime's fused operators."""


class Graph:
    """An ONNX graph under construction; values are identified by their names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, tensor: Tensor) -> str:
        """Add a constant and return its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(tensor.detach().cpu().contiguous().numpy(), name))
        return name

    def node(self, operator: str, *inputs: str | Tensor, domain: str = "", **attributes: Any) -> str:
        """Add an operation on values and constants and return the name of its result."""
        names = [self.weight(value) if isinstance(value, Tensor) else value for value in inputs]
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], domain=domain, **attributes))
        return result

    def model(self, resolution: int, outputs: Mapping[str, str]) -> bytes:
        """Serialize the graph from "pixels" (B, 3, R, R) to the values `outputs` by field name."""
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["B", 3, resolution, resolution])
        fields = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "trunk", [pixels], fields, self.weights)
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
        model: bytes = helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString()
        return model
