"""What a method's answers are worth: pure functions of arrays, one noun a file."""
