"""Input of a batch: folders of images with labels in CSV files, or arrays in a Python program."""
