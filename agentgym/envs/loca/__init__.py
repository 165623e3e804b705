"""LOCA-bench: office work with real services, at a chosen length of the description of the
environment.
"""
