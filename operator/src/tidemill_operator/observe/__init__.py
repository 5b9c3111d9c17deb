"""What is there: a cache of watched objects, and views of it that `decide` reads."""
