"""Rows in parts: batches, files and partitions, one after the other, and moments that are merged from them."""
