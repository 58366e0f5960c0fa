"""Find: which passages make a head look?"""
