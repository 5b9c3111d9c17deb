"""What spark-submit runs where a SparkApplication starts the driver: the command `tidemill`, with its arguments."""

from tidemill.cli.main import app

app()
