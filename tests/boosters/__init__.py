"""Boosters, as their models and files describe themselves: training settings, starting margins, older files."""
