"""Settings for all tests, made before any library is loaded."""

import os

# The tests run in as many processes as there are cores: more threads in each would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
