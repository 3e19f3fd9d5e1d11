"""Floor 3: backbones, one file a paper, and the Segmentor."""
