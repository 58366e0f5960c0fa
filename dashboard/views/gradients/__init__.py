"""Gradients: is the run healthy?"""
