"""Phases: when did the circuit form?"""
