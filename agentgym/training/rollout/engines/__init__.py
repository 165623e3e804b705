"""Engines that step many envs at once: in this process, in threads, in processes, with Ray."""
