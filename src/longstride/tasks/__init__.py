"""What is read and how quality is scored."""
