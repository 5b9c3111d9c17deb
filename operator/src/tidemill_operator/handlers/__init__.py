"""The process: settings, logs, leadership, kopf's watches, the web port. Nothing here decides anything."""
