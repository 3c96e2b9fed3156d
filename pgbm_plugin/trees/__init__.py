"""What any booster leaves behind: the trees, their objective, and how they were grown."""
