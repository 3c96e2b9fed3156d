"""Routes of rows through trees: walk each row, replay each tree on blocks of rows, or use a GPU."""
