"""Auctions that end at a time, with one winner each."""
