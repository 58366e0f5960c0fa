"""What the site is made of besides its pages: docstrings as reStructuredText, the measures, their pictures."""
