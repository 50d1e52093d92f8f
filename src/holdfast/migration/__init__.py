"""Moving in from another broker: one file for each format that is read, all of them in front of one inventory.

A reader (`mosquitto_db.py`, `mosquitto_sqlite.py`, `live_broker.py`, `emqx_api.py`, `emqx_archive.py`) says what it has
found, in the words of this broker, and what has to stay behind, and why (`inventory.py`). A destination
(`destination.py`) puts it into a data folder or a running broker. Settings, users and rules (`mosquitto_conf.py`,
`mosquitto_users.py`, `dynamic_security.py`) become files (`settings_files.py`). Readers take any bytes: they give rows
or a named problem, and take no more memory than what the source holds.
"""
