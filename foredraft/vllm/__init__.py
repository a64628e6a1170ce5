"""vLLM in our place: its command from our options, and our drafters as its proposers."""
