"""Any MQTT broker as a Spark source and sink: its retained set, its live messages, and publishing to it."""
