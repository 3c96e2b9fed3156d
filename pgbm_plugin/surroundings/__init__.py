"""What people keep around a booster: fitted steps that rows pass through, and transforms of the outcome."""
