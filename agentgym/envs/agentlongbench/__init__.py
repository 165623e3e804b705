"""AgentLongBench: guess a hidden item from feedback and lists, live and as questions about long
logs (arXiv 2601.20730).
"""
