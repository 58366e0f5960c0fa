"""One folder a page: `page` loads, chooses and draws; `data` holds its cached questions to tracer.

Not called pages: Streamlit takes a folder of that name beside its script for its own, and refuses the first deep link.
"""
