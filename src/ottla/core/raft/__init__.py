"""The Raft quorum of the metadata log (KIP-595), with one voter so far."""
