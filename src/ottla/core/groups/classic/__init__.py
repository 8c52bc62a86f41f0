"""Groups of the classic protocol: members join, the leader assigns, everybody syncs."""
