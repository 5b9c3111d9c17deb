"""What data is: which values there are, their bytes, order, hash and text, and columns of them.

Knows nothing of streams or stores.
"""
