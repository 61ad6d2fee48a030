"""Views of pictures: augmentations, the bank that keeps what the trunk made of them, and fresh ones."""
