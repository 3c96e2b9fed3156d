"""Tables that users have, read as rows of numbers: checked, named, encoded."""
