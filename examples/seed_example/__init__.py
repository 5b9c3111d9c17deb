"""A small module, and a program that runs it in its process."""
