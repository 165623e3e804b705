"""Engines that step many envs in one thread, many threads, processes or Ray actors."""
