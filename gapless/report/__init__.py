"""What people read of plans and of other large objects: text, tables, headlines, notebooks, pages."""
