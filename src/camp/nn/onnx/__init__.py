"""ONNX graphs of trunks and tips."""
