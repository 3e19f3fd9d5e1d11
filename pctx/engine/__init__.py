"""Floor 6: training with Lightning, losses, scores."""
