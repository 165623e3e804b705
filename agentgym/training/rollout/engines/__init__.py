"""Engines that step many envs at once: in one thread, many threads, processes or Ray actors."""
