"""Ablate: what breaks when these heads are switched off?"""
