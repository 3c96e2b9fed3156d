"""Choices and measures on held-out rows: tune, boosted scale, conformal intervals, scores."""
