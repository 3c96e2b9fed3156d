"""What a booster's settings and files may say: training settings, starting margins, older files."""
