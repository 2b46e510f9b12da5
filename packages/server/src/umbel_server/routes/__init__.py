"""The routes, one module per kind of request."""
