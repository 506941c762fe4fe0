"""How much attention heads resemble each other, and where that is from."""
