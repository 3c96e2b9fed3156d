"""The scikit-learn regressors of both boosters."""

from __future__ import annotations

import lightgbm as lgb
import xgboost as xgb

# leaves of few rows: the checks' data sets are small
REGRESSORS = {
    "lightgbm": lgb.LGBMRegressor(n_estimators=8, num_leaves=8, min_child_samples=2, n_jobs=1, verbose=-1),
    "xgboost": xgb.XGBRegressor(n_estimators=8, max_depth=3, n_jobs=1),
}
