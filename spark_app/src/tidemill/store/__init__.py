"""Objects that are created if absent, and what is built on nothing else: logs (of values: `entry_log`), JSON
objects (`json_codec`), leases, URLs.

Knows no records and no state.
"""
