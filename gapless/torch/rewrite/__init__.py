"""Rewrites of captured graphs: operators with less to keep, exactly eager's or, where asked for, close to them."""
