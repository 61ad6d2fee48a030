"""Engines that run a frozen trunk: pixels (B, 3, R, R) -> fields. Both are thread-safe."""

import functools

import torch
from torch import Tensor, nn

from camp.data.views import Batch


class TorchEngine:
    """The trunk as a torch module, without gradients."""

    def __init__(self, trunk: nn.Module, device: torch.device) -> None:
        self.trunk = trunk.eval().to(device)
        self.device = device

    def __call__(self, pixels: Tensor) -> Batch:
        """Compute the fields, on the device of the trunk."""
        with torch.no_grad():
            fields: Batch = self.trunk(pixels.to(self.device))
        return fields


class OnnxEngine:
    """The trunk as an ONNX graph, run by onnxruntime on the CPU."""

    def __init__(self, graph: bytes, names: tuple[str, ...], threads: int | None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        self.graph, self.names = graph, names
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def __reduce__(self) -> "tuple[type[OnnxEngine], tuple[bytes, tuple[str, ...], None]]":
        """Let Ray send the engine to another process, which runs it with as many threads as it uses."""
        return OnnxEngine, (self.graph, self.names, None)

    def single_threaded(self) -> "OnnxEngine":
        """Return the same trunk for callers that run one thread per core; made once, which takes a while."""
        return self._single_threaded

    @functools.cached_property
    def _single_threaded(self) -> "OnnxEngine":
        return OnnxEngine(self.graph, self.names, threads=1)

    def __call__(self, pixels: Tensor) -> Batch:
        """Compute the fields, on the CPU."""
        values = self.session.run(self.names, {"pixels": pixels.detach().cpu().contiguous().numpy()})
        return {name: torch.from_numpy(value) for name, value in zip(self.names, values)}
