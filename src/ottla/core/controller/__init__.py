"""The controller: it decides metadata records on an immutable image of the cluster (KIP-500)."""
