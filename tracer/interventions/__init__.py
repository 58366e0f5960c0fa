"""What is changed inside a forward pass, as values that travel with the call."""
