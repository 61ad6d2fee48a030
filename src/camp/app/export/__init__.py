"""Export of a workspace to other tools."""
