"""What people use: command line, plots, report, scikit-learn, documentation, examples, benchmarks."""
