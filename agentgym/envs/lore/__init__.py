"""LORE: long chains of documents that tell where the next ones are (TaskWeaver, section 3 and
appendix B).
"""
