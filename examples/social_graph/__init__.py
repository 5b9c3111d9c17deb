"""People follow each other; what they post is delivered to the timelines of their followers."""
