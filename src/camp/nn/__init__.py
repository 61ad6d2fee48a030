"""Backbones, losses, distillers, adapters and their ONNX export."""
