"""While a booster trains: moments that are taken as the trees grow, and scores of the distributions so far."""
