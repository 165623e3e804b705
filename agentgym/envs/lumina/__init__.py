"""LUMINA: list, tree and grid worlds whose optimal actions are known exactly (Rakhsha et al.,
section 4.1 and appendix A).
"""
