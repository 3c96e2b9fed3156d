"""`python -m pgbm_plugin`, which is `pgbm-plugin`."""

from .cli import main

raise SystemExit(main())
