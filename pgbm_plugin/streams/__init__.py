"""Rows that come in parts (batches, files, Dask partitions), and moments that are merged from the parts."""
