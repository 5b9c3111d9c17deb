"""What inputs of task graphs read: files as CSV and Parquet, frames, Datasets, depots. Each is a `nodes.Reader`."""
