"""Save models as files or bytes, without pickle, and check every file before it is used."""
