"""Builder and standard operators for ONNX graphs."""
