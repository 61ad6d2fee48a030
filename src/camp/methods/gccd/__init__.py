"""Methods for generalized continual category discovery."""
