"""The local page over a workspace, on which a person names, merges, splits and moves."""
