"""Custom objectives: torch losses as objectives of boosters, and their gradients."""
