"""Custom objectives: torch losses as objectives of boosters, and the gradients that they give."""
