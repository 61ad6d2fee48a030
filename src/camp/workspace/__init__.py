"""A person's categories over time: what was learned from which batch, what it is called, and who said so."""
