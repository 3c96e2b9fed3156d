"""Models as files and bytes, damaged and hostile ones included."""
