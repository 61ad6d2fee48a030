"""The application for a user's own images."""
