"""The methods of the paper: a trainer, memories, and one module per method."""
