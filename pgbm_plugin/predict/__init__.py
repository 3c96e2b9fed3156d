"""From trees to distributions: the variance recursion, the link, and the settings that shape the result."""
