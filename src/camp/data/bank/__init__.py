"""The view bank: outputs of a frozen trunk, computed once and kept on disk."""
