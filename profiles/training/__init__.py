"""Training graphs: what one step of training costs, operator by operator; built, measured, or read from files."""
