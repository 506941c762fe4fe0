"""What commands besides solve do: advice, what-ifs and their pictures, plans run by DDP, profiles measured."""
