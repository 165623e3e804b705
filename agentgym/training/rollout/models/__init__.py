"""Local models as policies, with chat templates, token sampling and vLLM."""
