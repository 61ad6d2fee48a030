"""Methods for class-incremental learning."""
