"""How a request becomes one prompt per shot: the base template, the caller's wishes, and a pose."""
