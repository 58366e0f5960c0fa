"""Circuits: which heads work together?"""
