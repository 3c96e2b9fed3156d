"""Rows in memory: kinds of table, column names, categories, and what is refused."""
