"""Gradients: how fast does every weight learn?"""
