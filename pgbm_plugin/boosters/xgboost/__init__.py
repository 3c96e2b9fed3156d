"""XGBoost."""
