"""What runs while a booster trains: recordings, the CRPS callback, custom and torch objectives."""
