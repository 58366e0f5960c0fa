"""Reading and writing files so that nothing is lost, and that nothing a stranger made is trusted."""
