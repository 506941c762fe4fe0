"""Your own model on a mesh of devices, as an instance."""
