"""Families of distributions against scipy.stats."""
