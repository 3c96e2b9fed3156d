"""The experiments of the PGBM paper with existing boosters. README.md says how to run them."""
