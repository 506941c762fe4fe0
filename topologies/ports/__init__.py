"""What the ports of a machine do beside sending: they slow down with connections, fail, and add up in switches."""
