"""What is taken along from a page: a file, a link, Python."""
