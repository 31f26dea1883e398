"""A client that loads a server with reviews, for `bench server`."""
