"""Floor 2: attention, positional encodings, sparse convolution."""
