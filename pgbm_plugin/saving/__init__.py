"""A model as a file or as bytes, without pickle: complete or not there, and checked before it is used."""
