"""Callbacks of training: moments gathered while the trees grow, and scores of the distributions so far."""
