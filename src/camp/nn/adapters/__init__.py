"""Adapters psi: Z_t-1 -> Z_t, which map centroids of earlier tasks to the new feature space."""
