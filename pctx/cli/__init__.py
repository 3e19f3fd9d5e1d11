"""Floor 7: the commands; the only place that knows Hydra."""
