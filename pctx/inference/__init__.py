"""Floor 5: prediction of whole clouds."""
