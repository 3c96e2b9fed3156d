"""The trees of any trained booster, their objective, and how they were grown."""
