"""What MONeT is compared with: ablations, Checkmate, Gist, checkpointing rules, sizes of the encodings."""
