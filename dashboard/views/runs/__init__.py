"""Runs: which runs are there, and how do they stand?"""
