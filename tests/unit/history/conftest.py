from history_writers import no_writer_stays_open

__all__ = ["no_writer_stays_open"]
