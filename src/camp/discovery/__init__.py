"""Finding known and novel categories among unlabelled features, and classifying by them."""
