"""Training on trajectories: behaviour cloning, GRPO and PPO, the rows and batches they learn from, and their logs."""
