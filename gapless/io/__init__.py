"""Plan files, and the one safe reader of each container that all formats use."""
