"""The dashboard: static pages that use only the HTTP API. Nothing here runs in the broker."""
