"""What is special about Redis."""
