"""Rows in parts: batches, CSV and Parquet files, Dask, partial moments, updates."""
