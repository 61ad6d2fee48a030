"""The local web page on which discovered categories are named, merged and split."""
