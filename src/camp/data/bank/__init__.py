"""View bank: stored outputs of the frozen trunk."""
