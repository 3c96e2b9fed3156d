"""What held-out rows choose and measure: tune, boosted scale, conformal intervals, scores."""
