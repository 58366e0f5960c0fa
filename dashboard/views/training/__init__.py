"""Training: how did loss and heads change?"""
