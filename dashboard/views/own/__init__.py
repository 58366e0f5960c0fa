"""Heads: what does every head look at?"""
