"""Phase 2: centroids of known and novel categories, and how many novel ones there are."""
