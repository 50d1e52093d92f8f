"""What can be done with retained messages, written once, for the HTTP API and the command line alike.

`retained.py` finds, reads, publishes, deletes, undoes and restores; `history.py` answers questions to the past;
`hygiene.py` finds what is worth a look. They work over a `RetainedSource`: a running broker (`live.py`) or a data
folder (`folder.py`). Who may do what is asked of a `Caller`.
"""
