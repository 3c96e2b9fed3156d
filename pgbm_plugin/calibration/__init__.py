"""What held-out rows choose: family, correlation, a map on the variance, or a scale of their own."""
