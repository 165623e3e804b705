"""Local models as policies: chat templates, sampling with token ids, vLLM."""
