"""Users' tables, checked and read as rows of numbers."""
