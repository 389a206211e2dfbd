"""How property tests draw their examples: anew every time or, by the profile `ci`, the same ones on every machine.

A rare example that fails is worth finding, but not as the failure of a change that has nothing to do with it. So `make
test`, which gates changes, sets HYPOTHESIS_PROFILE=ci; plain pytest draws at random, as does
`HYPOTHESIS_PROFILE=default make test`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # tests ask for the package by its name too
os.environ["LONGSTRIDE_CACHE"] = ""  # nothing is kept in the user's cache folder

settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
if profile := os.environ.get("HYPOTHESIS_PROFILE"):
    settings.load_profile(profile)
