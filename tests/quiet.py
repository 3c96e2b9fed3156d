"""`wrap` without its warnings, of certificates, which are tested elsewhere."""

from __future__ import annotations

import warnings

from pgbm_plugin import wrap


def quiet_wrap(*args, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wrap(*args, **given)
